"""The last layer is found by running the network, refused where there is none, and the network is left as found."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from infoform.network.batches import read_inputs
from infoform.network.last_layer import plain_outputs, trace_last_layer
from models import Recurrent, TokenPool, Wrapped


class Changed(nn.Module):
    """A body and a head whose output goes through a function."""

    def __init__(self, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.body, self.head, self.change = nn.Linear(4, 5), nn.Linear(5, 3), change

    def forward(self, x: Tensor) -> Tensor:
        return self.change(self.head(self.body(x).tanh()))


class Counting(nn.Module):
    """Counts its calls in a buffer, replaces another one, and can fail."""

    count: Tensor
    latest: Tensor

    def __init__(self, fails: bool = False) -> None:
        super().__init__()
        self.head, self.norm, self.fails = nn.Linear(4, 3), nn.BatchNorm1d(4), fails
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("latest", torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        self.latest = x[0, :2]
        out: Tensor = self.head(self.norm(x))
        if self.fails:
            raise RuntimeError("no outputs today")
        return out


def matrix(outputs: Tensor) -> Tensor:
    return outputs.reshape(len(outputs), -1)


def trace(model: nn.Module, *shape: int, examples: int = 3) -> str:
    batch = read_inputs(torch.randn(examples, *shape), torch.device("cpu"))
    return trace_last_layer(model, batch, matrix)


@pytest.mark.parametrize(
    ("model", "shape", "name"),
    [
        (nn.Linear(4, 3), (4,), ""),
        (nn.Sequential(nn.Linear(4, 5), nn.ReLU(inplace=True), nn.Linear(5, 3), nn.Dropout(0.5)), (4,), "2"),
        (nn.Sequential(nn.Conv2d(2, 5, 3), nn.AdaptiveAvgPool2d(1), nn.Conv2d(5, 3, 1), nn.Flatten()), (2, 6, 6), "2"),
        (nn.Sequential(nn.Conv2d(2, 3, 6), nn.Flatten()), (2, 6, 6), "0"),
        (nn.Sequential(nn.Linear(4, 5), TokenPool(), nn.Linear(5, 3), nn.Identity()), (7, 4), "2"),
        (Wrapped(nn.Linear(4, 3)), (4,), "inner"),
        (Recurrent(), (4,), "head"),
        (Changed(lambda out: out.squeeze()), (4,), "head"),
        (Changed(lambda out: out.unsqueeze(1)[:, 0]), (4,), "head"),
    ],
)
def test_the_layer_that_the_outputs_are_of_is_found(model: nn.Module, shape: tuple[int, ...], name: str) -> None:
    assert trace(model, *shape) == name
    if not isinstance(model, Changed):  # of one example it drops the axis, which is the model's own trouble
        assert trace(model, *shape, examples=1) == name


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda out: out.softmax(1), "is changed before it is returned"),
        (lambda out: 2 * out, "is changed before it is returned"),
        (lambda out: out.mul_(2), "is changed before it is returned"),
        (lambda out: out[:, :2], "is changed before it is returned"),
        (lambda out: out.T.reshape(-1, 3), "is changed before it is returned"),
        (lambda out: out.flip(1), "is changed before it is returned"),
        (lambda out: out + 0.5, "is changed before it is returned"),
    ],
)
def test_outputs_that_are_computed_from_a_layers_are_refused(change: Callable[[Tensor], Tensor], what: str) -> None:
    message = f"'head' \\(Linear\\) puts out, .* {what}; name .* layers=\\['head'\\]"
    with pytest.raises(ValueError, match=message):
        trace(Changed(change), 4)


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.same = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.same(self.same(x).tanh())  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("model", "shape", "message"),
    [
        (Twice(), (3,), r"those of 'same' \(Linear\), which is used 2 times; name"),
        (nn.Linear(4, 3), (5, 4), r"those of '' \(Linear\), which is used at 5 positions of each example"),
        (nn.Sequential(nn.Conv1d(4, 4, 3, groups=2), nn.Flatten()), (4, 3), r"'0' \(Conv1d\), which is used with 2 gr"),
        (nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3)), (4,), r"what '0' \(Linear\) puts out"),
        (Changed(lambda out: torch.ones(3, 2)), (4,), r"what 'head' \(Linear\) puts out"),
    ],
)
def test_other_layers_are_refused_and_named(model: nn.Module, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=f"layers='last' needs a layer .*{message}"):
        trace(model, *shape)


def test_a_users_hook_that_changes_the_output_is_seen() -> None:
    model = nn.Linear(4, 3)
    model.register_forward_hook(lambda module, args, output: 2 * output)
    with pytest.raises(ValueError, match="is changed before it is returned"):
        trace(model, 4)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_the_model_is_left_as_found(training: bool, fails: bool) -> None:
    model = Counting(fails).train(training)
    model.norm.train(not training)
    before, buffers = copy.deepcopy(model.state_dict()), dict(model.named_buffers())
    if fails:
        with pytest.raises(RuntimeError, match="no outputs today"):
            trace(model, 4)
    else:
        assert trace(model, 4) == "head"
    assert (model.training, model.norm.training) == (training, not training)
    assert not model.head._forward_hooks
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert all(buffer is buffers[name] for name, buffer in model.named_buffers())


def test_plain_outputs_are_the_models_in_evaluation_mode() -> None:
    model, x = Counting(), torch.randn(5, 4)
    found = plain_outputs(model.train(), read_inputs(x, x.device))
    assert not found.requires_grad
    model.eval()
    assert torch.equal(found, model(x))


def test_it_works_in_inference_mode() -> None:
    with torch.inference_mode():
        assert trace(nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)), 4) == "2"


def test_a_model_on_the_meta_device_can_be_traced() -> None:
    model: Any = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)).to("meta")
    batch = read_inputs(torch.zeros(2, 4, device="meta"), torch.device("meta"))
    assert trace_last_layer(model, batch, matrix) == "2"
    with pytest.raises(ValueError, match="is changed before it is returned"):
        trace_last_layer(nn.Sequential(model, nn.Softmax(1)), batch, matrix)
