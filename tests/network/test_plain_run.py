"""Compiled models, gradient checkpoints, models without values, and operators without forward mode."""

import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointFunction, checkpoint

import bounded
import infoform
from dense import assert_close

X = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


class Blocks(nn.Module):
    def __init__(self, reentrant: bool | None = None) -> None:
        super().__init__()
        self.first, self.block, self.head = nn.Linear(4, 5), nn.Sequential(nn.Linear(5, 5), nn.Tanh()), nn.Linear(5, 3)
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        hidden: Any = self.first(x)
        if self.reentrant is None:
            hidden = self.block(hidden)
        else:
            hidden = checkpoint(self.block, hidden, use_reentrant=self.reentrant)
        return self.head(hidden)  # type: ignore[no-any-return]


def make(reentrant: bool | None = None) -> Blocks:
    torch.manual_seed(0)
    return Blocks(reentrant).double()


def check_same(model: nn.Module) -> None:
    found, expected = (infoform.Laplace(one, "classification").fit([X], progress=False) for one in (model, make()))
    assert {row.parameter for row in found.coverage() if row.covered} == set(dict(make().named_parameters()))
    for kind in ("linear", "mc", "linear-mc"):
        probs = expected.predict(X, kind=kind).probs
        assert probs is not None
        assert_close(found.predict(X, kind=kind).probs, probs)


def test_a_compiled_model_is_run_as_it_is_written() -> None:
    compiled = torch.compile(make(), backend="eager")
    check_same(compiled)  # type: ignore[arg-type]


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpoints_change_nothing(reentrant: bool) -> None:
    apply = CheckpointFunction.apply
    check_same(make(reentrant))
    assert CheckpointFunction.apply == apply


def test_a_checkpoint_around_a_module_changes_nothing() -> None:
    from torch.distributed._composable.checkpoint_activation import checkpoint as composable
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    model = make()
    composable(model.block)
    check_same(model)
    wrapped = make()
    wrapped.block = checkpoint_wrapper(wrapped.block)  # type: ignore[assignment]
    found = infoform.Laplace(wrapped, "classification").fit([X], progress=False)
    expected = infoform.Laplace(make(), "classification").fit([X], progress=False)
    probs = expected.predict(X, kind="linear").probs
    assert probs is not None
    assert_close(found.predict(X, kind="linear").probs, probs)


def test_weights_that_are_spread_over_devices_are_refused_in_one_sentence() -> None:
    from torch.distributed.tensor import DTensor

    model = make()
    spread = type("DTensor", (nn.Parameter,), {})  # as parameters of a tensor-parallel module are
    assert DTensor.__name__ == "DTensor"
    model.head.weight = spread(model.head.weight.detach())
    with pytest.raises(TypeError, match=r"'head\.weight' is a DTensor, a part of which is on each device"):
        infoform.Laplace(model, "classification")


def test_a_model_compiled_in_place_is_run_as_it_is_written() -> None:
    model = make()
    model.compile(backend="eager")
    check_same(model)


def test_a_model_without_values_is_refused_in_one_sentence() -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(4, 3))
    laplace = infoform.Laplace(model, "classification")
    with pytest.raises(ValueError, match=r"'0\.weight' is on the meta device; load them first"):
        laplace.fit([X], progress=False)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.middle, self.head = nn.Linear(4, 4), nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.middle(self.before(x))[0][:, -1])  # type: ignore[no-any-return]


def test_linear_samples_of_an_operator_without_forward_mode_are_those_of_one_with_it() -> None:
    torch.manual_seed(0)
    model = Recurrent()  # in float32 torch has no forward mode for the LSTM, in float64 it has
    x = torch.randn(5, 3, 4)
    narrow = infoform.Laplace(model, "classification").fit([x], progress=False)
    with pytest.warns(UserWarning, match="no forward-mode derivative of .*rnn"):
        found = narrow.predict(x, kind="linear-mc", samples=4).samples
    wide_model = Recurrent().double()
    wide_model.load_state_dict(model.state_dict())
    drawn = narrow.posterior().sample(2, generator=torch.Generator().manual_seed(narrow.settings.seed))
    assert found is not None
    state = {name: parameter.detach() for name, parameter in wide_model.named_parameters()}
    for index in range(2):
        deviation = {
            key: value
            for name, one in drawn.items()
            for key, value in narrow.layers[name].as_parameters(one[index].double()).items()
        }
        outputs, along = torch.func.jvp(  # type: ignore[misc]
            lambda own: torch.func.functional_call(wide_model, {**state, **own}, (x.double(),)),
            ({name: state[name] for name in deviation},),
            (deviation,),
        )
        expected = (outputs + along).softmax(-1)
        close = [float((one.double() - expected).abs().max()) < 1e-4 for one in found]
        assert any(close)


def test_an_import_of_infoform_does_not_import_the_compiler() -> None:
    code = (
        "import sys, torch, infoform.laplace, infoform.cli.run_folder\n"
        "laplace = infoform.Laplace(torch.nn.Linear(3, 2), 'classification')\n"
        "laplace.fit([(torch.randn(9, 3), torch.arange(9) % 2)], progress=False).predict(torch.randn(2, 3))\n"
        "assert 'torch._dynamo' not in sys.modules"
    )
    assert bounded.run([sys.executable, "-W", "ignore", "-c", code]).returncode == 0
