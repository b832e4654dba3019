"""layers="last" names the layer that the first batch shows, in fits, updates, files, checkpoints and plans."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import infoform
from dense import assert_close
from infoform.prediction import Prediction


def network(outputs: int = 3) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, outputs)).double()


def batches(count: int = 3, seed: int = 1) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(8 * count, 5, dtype=torch.float64, generator=generator)
    return list(zip(x.split(8), torch.randint(0, 3, (8 * count,), generator=generator).split(8), strict=True))


def last(model: nn.Module | None = None, **options: Any) -> infoform.Laplace:
    return infoform.Laplace(model or network(), "classification", layers="last", **options)


def check_predictions(one: infoform.Laplace, other: infoform.Laplace) -> None:
    x = batches(1, seed=9)[0][0]
    found, expected = one.predict(x), other.predict(x)
    assert isinstance(found, Prediction)
    assert found.kind == expected.kind == "linear"
    assert found.reason == expected.reason == "one forward pass: the last layer alone has a posterior"
    assert_close(found.value, expected.value, rtol=1e-12)
    assert_close(found.epistemic, expected.epistemic, rtol=1e-12)


def test_the_fit_is_that_of_the_named_layer() -> None:
    laplace = last().fit(batches(), progress=False)
    assert list(laplace.layers) == list(laplace.posterior().layers) == ["2"]
    assert set(laplace.sample(1)) == {"2.weight", "2.bias"}
    named = infoform.Laplace(network(), "classification", layers=["2"]).fit(batches(), progress=False)
    check_predictions(laplace, named)
    assert laplace.log_evidence() == pytest.approx(named.log_evidence(), rel=1e-12)


def test_coverage_says_before_a_fit_that_it_is_not_known() -> None:
    laplace = last()
    assert {row.reason for row in laplace.coverage()} == {"layers='last' is found by fit"}
    laplace.fit(batches(), progress=False)
    assert {row.parameter for row in laplace.coverage() if row.covered} == {"2.weight", "2.bias"}
    assert {row.reason for row in laplace.coverage() if not row.covered} == {"not selected by layers="}


@pytest.mark.parametrize("structure", ["inf", "kfac"])
def test_a_file_keeps_the_layer(structure: str, tmp_path: Path) -> None:
    laplace = last(structure=structure).fit(batches(), progress=False)
    laplace.save(tmp_path / "posterior.safetensors", curvature=True)
    loaded = infoform.load(tmp_path / "posterior.safetensors", network())
    assert loaded.settings.layers == "last"
    assert list(loaded.layers) == ["2"]
    assert str(loaded.coverage()) == str(laplace.coverage())
    check_predictions(loaded, laplace)
    loaded.fit(batches(2, seed=4), update=True, progress=False)
    laplace.fit(batches(2, seed=4), update=True, progress=False)
    assert loaded.num_data == laplace.num_data == 40
    check_predictions(loaded, laplace)


def test_a_second_fit_looks_again() -> None:
    laplace = last().fit(batches(), progress=False)
    again = last(laplace.model).fit(batches(4, seed=7), progress=False)
    check_predictions(laplace.fit(batches(4, seed=7), progress=False), again)


@pytest.mark.parametrize("structure", ["diag", "kfac"])
def test_an_iterator_loses_no_batch(structure: str) -> None:
    laplace = last(structure=structure).fit(iter(batches()), progress=False)
    assert laplace.num_data == 24
    check_predictions(laplace, last(structure=structure).fit(batches(), progress=False))


def test_a_shuffling_loader_gives_the_same_fit_as_by_name() -> None:
    x, y = (torch.cat(parts) for parts in zip(*batches(), strict=True))
    found = []
    for layers in ("last", ["2"]):
        loader = DataLoader(TensorDataset(x, y), 5, shuffle=True, generator=torch.Generator().manual_seed(0))
        found.append(infoform.Laplace(network(), "classification", layers=layers).fit(loader, progress=False))
    check_predictions(*found)


def test_a_stopped_fit_goes_on(tmp_path: Path) -> None:
    class Stopping(list[Any]):
        def __iter__(self) -> Any:
            self.rounds = getattr(self, "rounds", 0) + 1
            for number, batch in enumerate(super().__iter__()):
                if self.rounds == 3 and number == 2:  # in the second pass; the first round looks for the layer
                    raise OSError("the disk is away")
                yield batch

    options: dict[str, Any] = {"checkpoint": tmp_path / "part", "checkpoint_every": 0.0, "progress": False}
    with pytest.raises(OSError, match="the disk is away"):
        last().fit(Stopping(batches()), **options)
    assert list((tmp_path / "part").glob("pass-2*"))
    resumed = last().fit(batches(), **options)
    check_predictions(resumed, last().fit(batches(), progress=False))


def test_a_refused_fit_leaves_all_as_it_was() -> None:
    model = nn.Sequential(network(), nn.Softmax(1))
    before = copy.deepcopy(model.state_dict())
    laplace = last(model)
    with pytest.raises(ValueError, match=r"'0.2' \(Linear\) puts out, .* name the layers .* layers=\['0.2'\]"):
        laplace.fit(batches(), progress=False)
    with pytest.raises(ValueError, match="the loader gave no examples"):
        last().fit([], progress=False)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    with pytest.raises(RuntimeError, match="no posterior yet"):
        laplace.predict(batches()[0][0])


def test_another_string_is_refused() -> None:
    with pytest.raises(
        TypeError, match=r"layers must be a list of layer names, 'last' or 'all', got the string 'head'"
    ):
        infoform.Laplace(network(), "classification", layers="head")


def test_a_plan_needs_an_example() -> None:
    model, example = network(), batches()[0][0]
    for target in (model, last(model)):
        options: dict[str, Any] = {"layers": "last"} if target is model else {}
        with pytest.raises(ValueError, match="layers='last' is found by running the model; give example="):
            infoform.plan(target, **options)
        planned = infoform.plan(target, example=example, **options)
        assert [layer.name for layer in planned.layers] == ["2"]
    laplace = last(model).fit(batches(), progress=False)
    assert [layer.name for layer in infoform.plan(laplace).layers] == ["2"]


def test_one_output_is_enough_for_a_plan_of_a_model() -> None:
    planned = infoform.plan(network(1), layers="last", example=batches()[0][0])
    assert planned.layers[0].shape == (1, 5)


@pytest.mark.filterwarnings("ignore:the best prior_precision")
def test_tuning_uses_the_closed_form() -> None:
    laplace = last().fit(batches(), progress=False)
    laplace.tune(batches(2, seed=5), trials=3, prior_precision=(1e-3, 1e3), progress=False)
    assert len(laplace.trials) == 3
