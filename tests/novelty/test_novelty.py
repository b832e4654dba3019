"""Novelty end to end: valid on fresh known data, the same whatever the batches, kept, updated, resumed and saved."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from scipy.stats import kstest  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.testing import assert_close

import infoform
from infoform import FitOptions, Laplace
from infoform.novelty.known_inputs import pack_known
from infoform.novelty.parts import PARTS
from infoform.prediction import Prediction, join_predictions
from models import MODELS

Batches = list[tuple[Tensor, Tensor]]


def make_model(outputs: int = 3) -> nn.Module:
    torch.manual_seed(0)
    layers = (nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(36, 8), nn.Tanh(), nn.Linear(8, outputs))
    return nn.Sequential(*layers).double()


def make_data(examples: int, *, seed: int = 1, shift: float = 0.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(examples, 1, 5, 5, generator=generator, dtype=torch.float64) + shift
    return x, torch.randint(3, (examples,), generator=generator)


def batches(data: tuple[Tensor, Tensor], size: int = 50) -> Batches:
    return list(zip(data[0].split(size), data[1].split(size), strict=True))


def fit(model: nn.Module, data: tuple[Tensor, Tensor], size: int = 50, **options: Any) -> Laplace:
    return Laplace(model, "classification", structure="diag", **options).fit(batches(data, size), progress=False)


def known_tensors(laplace: Laplace) -> dict[str, Tensor]:
    assert laplace._known is not None
    return pack_known(laplace._known)[0]


def test_novelty_is_uniform_on_fresh_known_data_and_high_on_unknown_data() -> None:
    known, fresh = 20_000, 4000
    laplace = fit(make_model(), make_data(3000))
    laplace.calibrate_novelty(batches(make_data(known, seed=2), 1000), progress=False)
    novelty, unknown = laplace.novelty(make_data(fresh, seed=3)[0]), make_data(500, seed=4, shift=3.0)[0]
    effective = known * fresh / (known + fresh)  # the percentiles are a sample, too
    for values in (novelty.novelty, *novelty.novelty_parts.values(), *novelty.novelty_layers.values()):
        assert kstest(values.numpy(), "uniform").statistic < 1.95 / math.sqrt(effective)  # in one of 1,000 cases
    for share in (0.05, 0.2):
        found = float(novelty.novel(share).double().mean())
        assert abs(found - share) < 3.3 * math.sqrt(share * (1 - share) / effective)
    assert float(laplace.novelty(unknown).novel().double().mean()) > 0.99


def test_examples_left_out_of_a_fit_stand_for_fresh_data_where_the_network_was_not_trained_on_them() -> None:
    laplace = fit(make_model(), make_data(4000))
    assert laplace._known is not None
    assert laplace._known.calibration is not None
    assert 400 < laplace._known.calibration.count <= 1000
    values = laplace.novelty(make_data(2000, seed=3)[0]).novelty
    assert kstest(values.numpy(), "uniform").statistic < 0.07


def test_very_strange_inputs_have_an_order_and_the_layer_that_is_most_surprised_is_named() -> None:
    laplace = fit(make_model(), make_data(600))
    x = make_data(1, seed=9)[0] * torch.tensor([100.0, 3000.0, 1000.0], dtype=torch.float64).reshape(3, 1, 1, 1)
    novelty = laplace.novelty(x)
    assert novelty.by_layer[:, 0].tolist() == [1.0] * 3
    assert novelty.layer_strangeness[:, 0].argsort().tolist() == [0, 2, 1]
    expected = [novelty.layer_names[place] for place in novelty.layer_strangeness.argmax(1).tolist()]
    assert novelty.strangest_layers == expected
    assert_close(novelty.novelty, -torch.expm1(-novelty.strangeness))


@pytest.mark.parametrize("size", [1, 7, 300])
def test_the_batch_size_changes_nothing(size: int) -> None:
    data = make_data(300)
    one, other = fit(make_model(), data, 50), fit(make_model(), data, size)
    for name, value in known_tensors(one).items():
        assert_close(known_tensors(other)[name], value, rtol=1e-5, atol=1.001 if value.dtype == torch.int8 else 1e-5)
    x = make_data(40, seed=5)[0]
    whole = one.novelty(x)
    assert_close(torch.cat([one.novelty(part).novelty for part in x.split(7)]), whole.novelty, rtol=1e-9, atol=1e-9)
    parts = [one.predict(part, link="probit") for part in x.split(7)]
    assert_close(join_predictions(parts).novelty, whole.novelty, rtol=1e-9, atol=1e-9)
    prediction, _ = one.predict_loader(list(x.split(9)), link="probit", progress=False)
    assert_close(prediction.novelty, whole.novelty, rtol=1e-9, atol=1e-9)
    assert_close(prediction.novelty_layers["3"], whole.novelty_layers["3"], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["linear", "mc", "linear-mc"])
@pytest.mark.parametrize("layers", [None, "last"])
def test_every_kind_of_prediction_tells_the_same_novelty(kind: str, layers: str | None) -> None:
    laplace = fit(make_model(), make_data(200), layers=layers, prior=infoform.Isotropic(1e4))
    x = make_data(12, seed=5)[0]
    prediction = laplace.predict(x, kind=kind, samples=3)
    assert_close(prediction.novelty, laplace.novelty(x).novelty, rtol=1e-9, atol=1e-9)
    assert set(prediction.novelty_parts) == set(PARTS)
    assert list(prediction.novelty_layers) == ["0", "3", "5"]
    again = Prediction.of(prediction.tensors())
    assert torch.equal(again.novelty, prediction.novelty)
    assert torch.equal(again.novelty_layers["5"], prediction.novelty_layers["5"])
    assert torch.equal(again.novel(), prediction.novel())


@pytest.mark.parametrize("case", MODELS)
def test_every_kind_of_layer_is_looked_at_and_the_model_stays_as_found(case: str) -> None:
    model = MODELS[case].model().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    laplace = Laplace(model, "classification", structure="diag")
    laplace.fit([(MODELS[case].inputs(60), torch.arange(60) % 3)], progress=False)
    found = laplace.novelty(MODELS[case].inputs(7))
    assert set(found.novelty_layers) == set(MODELS[case].layers)
    assert bool(((found.novelty >= 0) & (found.novelty <= 1)).all())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(module.training and not module._forward_hooks for module in model.modules())


@pytest.mark.parametrize(("likelihood", "parts"), [("regression", {"typicality", "head"}), ("multilabel", set(PARTS))])
def test_other_likelihoods_have_the_parts_that_make_sense(likelihood: str, parts: set[str]) -> None:
    x, _ = make_data(300)
    targets = (torch.randn(300, 2, dtype=torch.float64) > 0).double()
    laplace = Laplace(make_model(2), likelihood, structure="diag").fit([(x, targets)], progress=False)
    prediction = laplace.predict(torch.cat([x[:5], x[:5] + 9]))
    assert set(prediction.novelty_parts) == parts
    assert prediction.novel().tolist()[5:] == [True] * 5


def test_inputs_without_labels_are_told_apart_by_the_networks_own_answers() -> None:
    x, _ = make_data(300)
    model = make_model()
    with torch.no_grad():
        answers = model(x).argmax(1)
    alone = Laplace(model, "classification", structure="diag").fit([x], progress=False)
    told = Laplace(model, "classification", structure="diag").fit([(x, answers)], progress=False)
    assert_close(alone.novelty(x[:20]).novelty, told.novelty(x[:20]).novelty)


def test_tune_calibrates_on_the_validation_data() -> None:
    laplace = fit(make_model(), make_data(300))
    held_out = make_data(200, seed=2)
    tuned = fit(make_model(), make_data(300)).tune(batches(held_out), trials=3, progress=False)
    laplace.calibrate_novelty(batches(held_out, 33), progress=False)
    x = make_data(20, seed=5)[0]
    assert tuned._known is not None
    assert tuned._known.calibration is not None
    assert tuned._known.calibration.count == 200
    assert_close(tuned.novelty(x).novelty, laplace.novelty(x).novelty)


def test_a_saved_posterior_tells_the_same(tmp_path: Path) -> None:
    model = make_model()
    laplace = fit(model, make_data(300)).calibrate_novelty([make_data(100, seed=2)], progress=False)
    laplace.save(tmp_path / "posterior.safetensors")
    loaded = infoform.load(tmp_path / "posterior.safetensors", model)
    x = make_data(20, seed=5)[0]
    assert torch.equal(loaded.predict(x).novelty, laplace.predict(x).novelty)
    assert torch.equal(loaded.novelty(x).by_layer, laplace.novelty(x).by_layer)


def test_a_file_of_an_earlier_version_loads_and_says_that_it_has_none(tmp_path: Path) -> None:
    model, path = make_model(), tmp_path / "posterior.safetensors"
    options = FitOptions(novelty=False)
    fit(model, make_data(100), fit_options=options).save(path)
    laplace = infoform.load(path, model)
    with pytest.raises(ValueError, match=r"FitOptions\(novelty=False\).*fit again"):
        laplace.novelty(make_data(3)[0])
    laplace.settings = fit(model, make_data(100)).settings  # of which files do not speak
    laplace.save(path)
    with safe_open(path, "pt") as file:
        assert "novelty" not in json.loads(file.metadata()["options"])
    earlier = infoform.load(path, model)
    prediction = earlier.predict(make_data(3)[0])
    assert prediction.input_novelty is None
    with pytest.raises(ValueError, match=r"this prediction has no novelty.*earlier version"):
        prediction.novel()
    for ask in (lambda: earlier.novelty(make_data(3)[0]), lambda: earlier.calibrate_novelty([make_data(3)])):
        with pytest.raises(ValueError, match="file of an earlier version; fit again"):
            ask()


def test_an_update_adds_the_inputs_to_those_known() -> None:
    data, more = make_data(400), make_data(400, seed=7, shift=0.3)
    laplace = Laplace(make_model(), "classification").fit(batches(data), progress=False)
    assert laplace._known is not None
    before = laplace._known
    laplace.fit(batches(more), update=True, progress=False)
    assert laplace._known is not None
    both = (torch.cat([data[0], more[0]]), torch.cat([data[1], more[1]]))
    whole = Laplace(make_model(), "classification").fit(batches(both), progress=False)._known
    assert whole is not None
    for name, gaussian in laplace._known.layers.items():
        assert float(gaussian.counts.sum()) == float(whole.layers[name].counts.sum())
        assert_close(gaussian.mean, whole.layers[name].mean, rtol=1e-5, atol=1e-5)
        assert_close(gaussian.deviation, whole.layers[name].deviation, rtol=1e-2, atol=1e-3)
    assert before.calibration is not None
    assert laplace._known.calibration is not None
    assert laplace._known.calibration.count > before.calibration.count
    without = fit(make_model(), data, fit_options=FitOptions(novelty=False))
    assert without.fit(batches(more), update=True, progress=False)._known is None


class Stopping:
    """The batches, and an error before one of them."""

    def __init__(self, given: Batches, before: int) -> None:
        self.given, self.left = given, before

    def __iter__(self) -> Any:
        for batch in self.given:
            if self.left == 0:
                raise OSError("the disk is gone")
            self.left -= 1
            yield batch


@pytest.mark.parametrize("before", [1, 4, 8, 11])  # in the first pass and in the second
def test_a_fit_that_was_stopped_goes_on_to_the_same(tmp_path: Path, before: int) -> None:
    given = batches(make_data(300))
    expected = Laplace(make_model(), "classification").fit(given, progress=False)
    options: dict[str, Any] = {"checkpoint": tmp_path / "part", "checkpoint_every": 0, "progress": False}
    with pytest.raises(OSError, match="the disk is gone"):
        Laplace(make_model(), "classification").fit(Stopping(given, before), **options)
    resumed = Laplace(make_model(), "classification").fit(given, **options)
    found = known_tensors(resumed)
    assert found.keys() == known_tensors(expected).keys()
    assert all(torch.equal(found[name], value) for name, value in known_tensors(expected).items())


@pytest.mark.parametrize(
    "options", [{"fit_options": FitOptions(basis_data=0.5)}, {"layers": "last"}, {"layers": ["3"]}]
)
def test_all_examples_and_layers_count_however_the_curvature_is_measured(options: dict[str, Any]) -> None:
    data = make_data(300)
    expected = known_tensors(Laplace(make_model(), "classification").fit(batches(data), progress=False))
    found = known_tensors(Laplace(make_model(), "classification", **options).fit(batches(data), progress=False))
    assert [name for name in found if name.endswith("mean")] == [name for name in expected if name.endswith("mean")]
    for name in found:
        if name.endswith(("/mean", "/deviation", "/counts")):
            assert_close(found[name], expected[name], rtol=1e-5, atol=1e-6)


def test_groups_of_layers_see_the_inputs_once(tmp_path: Path) -> None:
    data = make_data(100)
    expected = Laplace(make_model(), "classification").fit(batches(data), progress=False)
    laplace = Laplace(make_model(), "classification", fit_options=FitOptions(chunk="4kB"))
    peak = infoform.plan(laplace, example=data[0][:50]).peak_bytes
    assert peak is not None
    options: dict[str, Any] = {"max_memory": peak - 1, "checkpoint": tmp_path, "checkpoint_every": 0, "progress": False}
    laplace.fit(batches(data), **options)
    found = known_tensors(laplace)
    assert all(torch.equal(found[name], value) for name, value in known_tensors(expected).items())


def test_novelty_takes_few_bytes_beside_the_posterior() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(100, 200), nn.Tanh(), nn.Linear(200, 200), nn.Tanh(), nn.Linear(200, 10))
    data = (torch.randn(500, 100), torch.arange(500) % 10)
    laplace = Laplace(model, "classification").fit([data], progress=False)
    assert laplace._known is not None
    assert laplace._known.nbytes <= 0.05 * laplace.posterior().nbytes


def test_what_cannot_be_told_is_said() -> None:
    x, y = make_data(100)
    laplace = Laplace(make_model(), "classification", structure="diag")
    for ask in (lambda: laplace.novelty(x), lambda: laplace.calibrate_novelty([x])):
        with pytest.raises(RuntimeError, match=r"call fit\(loader\) first"):
            ask()
    laplace.fit([(x, y)], progress=False)
    before = laplace.novelty(x[:9]).novelty
    with pytest.raises(ValueError, match="got 1 of 100 others; look for missing values"):
        laplace.calibrate_novelty(
            [torch.where(torch.arange(100)[:, None, None, None] == 3, math.nan, x)], progress=False
        )
    with pytest.raises(ValueError, match=r"fails on a batch of shape \(100, 25\)"):
        laplace.calibrate_novelty([x.flatten(1)], progress=False)
    with pytest.raises(ValueError, match="the loader gave none"):
        laplace.calibrate_novelty([], progress=False)
    with pytest.raises(ValueError, match="at least one example"):
        laplace.novelty(x[:0])
    with pytest.raises(ValueError, match=r"false_alarms must be a share .* got 5"):
        laplace.predict(x[:3]).novel(5)
    assert torch.equal(laplace.novelty(x[:9]).novelty, before)
    few = Laplace(make_model(), "classification", structure="diag").fit([(x[:1], y[:1])], progress=False)
    with pytest.raises(ValueError, match=r"too few examples.*call calibrate_novelty\(loader\)"):
        few.novelty(x)
    with pytest.raises(ValueError, match="this prediction has no novelty"):
        few.predict(x[:3]).novelty  # noqa: B018
    assert few.calibrate_novelty([x], progress=False).novelty(x).novelty.isfinite().all()


def test_inputs_that_never_varied_have_a_novelty_of_one_when_they_change() -> None:
    x, y = make_data(400)
    x[:, :, 0, :] = 2.0
    x[:, :, 1, :] = 0.0
    model = nn.Sequential(nn.Flatten(), nn.Linear(25, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    laplace = fit(model, (x, y))
    for row, change in ((0, 0.5), (1, 1e-2)):
        changed = x[:50].clone()
        changed[:, :, row, 0] += change
        found = laplace.novelty(changed)
        assert bool((found.novelty_layers["1"] > 0.999).all())
        assert bool(found.novelty.isfinite().all())
    spoilt = x[:2].clone()
    spoilt[:, :, 0, 0] = math.nan
    assert laplace.novelty(spoilt).novelty.tolist() == [1.0, 1.0]
    same = fit(make_model(), (torch.ones(60, 1, 5, 5, dtype=torch.float64), y[:60]))
    assert bool(same.novelty(x[:5]).novel().all())
    assert not bool(same.novelty(torch.ones(5, 1, 5, 5, dtype=torch.float64)).novel().any())
