"""The promise of sets and intervals end to end: over random splits, after tuning, in a file, void after a change."""

import math
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import infoform
from infoform import FitOptions, Laplace
from infoform.conformal import SET_SCORES, Conformal
from infoform.prediction import Prediction, select_examples

pytestmark = pytest.mark.filterwarnings("ignore:the best prior_precision.*is at an end of the searched range")
SPLITS = 500
LEVELS = (0.5, 0.8, 0.9, 0.99)
Data = tuple[Tensor, Tensor]
needs_data = pytest.mark.skipif(
    "INFOFORM_DATA" not in os.environ and "CI" not in os.environ, reason="needs the folder INFOFORM_DATA"
)


def trained(model: nn.Module, data: Data, loss: Callable[..., Tensor], *, steps: int = 150) -> nn.Module:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(model(data[0]), data[1]).backward()
        optimizer.step()
    return model


def perceptron(inputs: int, outputs: int, *, hidden: int = 20) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, outputs))


def rows(data: Data, places: Any) -> Data:
    return data[0][places], data[1][places]


@cache
def digits() -> tuple[Prediction, Tensor]:
    """Return predictions of 1,000 digits that neither training nor tuning has seen, and their classes."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    data = torch.tensor(x, dtype=torch.float32)[order] / 16, torch.tensor(y)[order]
    model = trained(perceptron(64, 10), rows(data, slice(500)), nn.functional.cross_entropy, steps=60)
    laplace = Laplace(model, "classification", layers="last").fit([rows(data, slice(500))], progress=False)
    laplace.tune([rows(data, slice(500, 797))], trials=5, progress=False)
    return laplace.predict(data[0][797:]), data[1][797:]


@cache
def energy() -> tuple[Prediction, Tensor]:
    from infoform.data.uci import RegressionSet

    buildings = RegressionSet.read("energy")
    order = torch.randperm(len(buildings.x), generator=torch.Generator().manual_seed(0))
    x, y = buildings.x[order].float(), buildings.y[order].float()
    x, y = (x - x.mean(0)) / x.std(0), (y - y.mean(0)) / y.std(0)
    model = trained(perceptron(x.shape[1], 1), (x[:200], y[:200]), nn.functional.mse_loss)
    laplace = Laplace(model, "regression").fit([(x[:200], y[:200])], progress=False)
    laplace.tune([(x[200:280], y[200:280])], trials=5, progress=False)
    return laplace.predict(x[280:]), y[280:]


@cache
def wrong_noise() -> tuple[Prediction, Tensor]:
    """Return predictions with a third of the noise that there is, and noise of another distribution than a Gaussian."""
    generator = torch.Generator().manual_seed(0)
    x = 2 * torch.randn(700, 1, generator=generator)
    noise = -torch.rand(700, 1, generator=generator).log()  # exponential: skew, with mean 1
    y = torch.sin(x) + noise
    laplace = Laplace(trained(perceptron(1, 1), (x[:100], y[:100]), nn.functional.mse_loss), "regression")
    laplace.fit([(x[:100], y[:100])], progress=False)
    assert laplace.noise is not None
    laplace.noise /= 3
    return laplace.predict(x[100:]), y[100:]


def shares_held(case: tuple[Prediction, Tensor], calibrated: int, **options: Any) -> dict[float, Tensor]:
    """Return the share of answers that are held, by level, in each of the random splits: (SPLITS,)."""
    prediction, targets = case
    held: dict[float, list[float]] = {level: [] for level in LEVELS}
    generator = torch.Generator().manual_seed(1)
    for _ in range(SPLITS):
        order = torch.randperm(len(targets), generator=generator)
        known, fresh = order[:calibrated], order[calibrated:]
        if prediction.probs is not None:
            conformal, probs = Conformal.of_classes(prediction.probs[known], targets[known]), prediction.probs[fresh]
            for level in LEVELS:
                inside = conformal.set(probs, level, **options).gather(1, targets[fresh, None])
                held[level].append(float(inside.double().mean()))
        else:
            mean, std = prediction.value, prediction.std
            conformal = Conformal.of_numbers(mean[known], std[known], targets[known])
            for level in LEVELS:
                low, high = conformal.interval(mean[fresh], std[fresh], level, **options)
                held[level].append(float(((low <= targets[fresh]) & (targets[fresh] <= high)).double().mean()))
    return {level: torch.tensor(shares, dtype=torch.float64) for level, shares in held.items()}


def check_shares(held: dict[float, Tensor], calibrated: int, fresh: int) -> None:
    """Of a fixed pool the mean over all splits is exactly ⌈(n + 1) level⌉ / (n + 1); 500 splits have their error."""
    for level, shares in held.items():
        promised = math.ceil((calibrated + 1) * level - 1e-9) / (calibrated + 1)
        error = math.sqrt(promised * (1 - promised) * (1 / calibrated + 1 / fresh) / SPLITS)
        assert abs(float(shares.mean()) - promised) < 3.5 * error, level


@pytest.mark.parametrize("score", SET_SCORES)
def test_sets_of_digits_hold_the_class_as_often_as_they_say_over_500_splits(score: str) -> None:
    check_shares(shares_held(digits(), 400, score=score, allow_empty=True), 400, 600)


def test_sets_that_are_never_empty_hold_the_class_at_least_as_often() -> None:
    for level, shares in shares_held(digits(), 400).items():
        assert float(shares.mean()) > level - 3.5 * math.sqrt(level * (1 - level) * (1 / 400 + 1 / 600) / SPLITS)


@needs_data
@pytest.mark.parametrize("scale", ["std", "constant"])
def test_intervals_of_uci_data_hold_the_target_as_often_as_they_say_over_500_splits(scale: str) -> None:
    fresh = len(energy()[1]) - 200
    check_shares(shares_held(energy(), 200, scale=scale), 200, fresh)


@pytest.mark.parametrize("scale", ["std", "constant"])
def test_intervals_hold_the_target_as_often_as_they_say_where_the_noise_is_wrong(scale: str) -> None:
    check_shares(shares_held(wrong_noise(), 250, scale=scale), 250, 350)
    low, high = wrong_noise()[0].gaussian_interval(0.9)
    inside = (low <= wrong_noise()[1]) & (wrong_noise()[1] <= high)
    assert float(inside.double().mean()) < 0.7  # which the Gaussian interval does not


def test_adaptive_intervals_are_narrower_than_constant_ones_at_equal_coverage_where_uncertainty_differs() -> None:
    generator = torch.Generator().manual_seed(0)
    widths: dict[str, list[float]] = {"std": [], "constant": []}
    shares: dict[str, list[float]] = {"std": [], "constant": []}
    for _ in range(20):
        x = 0.5 * torch.randn(1040, 20, generator=generator, dtype=torch.float64)
        x[40:] *= 1 + 7 * torch.randint(2, (1000, 1), generator=generator)  # half of the inputs are far from the data
        y = x @ torch.randn(20, 1, generator=generator, dtype=torch.float64)
        y = y + 0.1 * torch.randn(1040, 1, generator=generator, dtype=torch.float64)
        model = nn.Linear(20, 1).double()
        solution = torch.linalg.lstsq(torch.cat([x[:40], torch.ones(40, 1).double()], 1), y[:40]).solution
        with torch.no_grad():
            model.weight.copy_(solution[:20].T)
            model.bias.copy_(solution[20])
        laplace = Laplace(model, "regression", structure="full").fit([(x[:40], y[:40])], progress=False)
        laplace.noise, laplace.prior_precision = 0.1, 1.0
        laplace.calibrate_conformal([(x[40:540], y[40:540])], progress=False)
        prediction = laplace.predict(x[540:])
        for scale in widths:
            low, high = prediction.interval(0.9, scale=scale)
            widths[scale].append(float((high - low).mean()))
            shares[scale].append(float(((low <= y[540:]) & (y[540:] <= high)).double().mean()))
    means = {scale: sum(found) / 20 for scale, found in shares.items()}
    error = 3.5 * math.sqrt(0.09 * (2 / 500) / 20)
    assert all(abs(share - math.ceil(501 * 0.9) / 501) < error for share in means.values())
    assert sum(widths["std"]) < 0.95 * sum(widths["constant"])


def test_adaptive_intervals_are_narrower_than_constant_ones_at_equal_coverage_where_the_noise_differs() -> None:
    generator = torch.Generator().manual_seed(0)
    seeds, known, fresh = 10, 500, 1000
    widths, shares = ({scale: torch.zeros(seeds) for scale in ("std", "constant")} for _ in range(2))
    for seed in range(seeds):
        x = 4 * torch.rand(300 + known + fresh, 1, generator=generator) - 2
        y = x.sin() + (0.05 + 0.5 * x.abs()) * torch.randn(x.shape, generator=generator)
        train, (held, targets) = (x[:300], y[:300]), (x[300 + known :], y[300 + known :])

        def density(outputs: Tensor, targets: Tensor) -> Tensor:
            mean, log_variance = outputs.chunk(2, dim=1)
            return nn.functional.gaussian_nll_loss(mean, targets, log_variance.exp())

        laplace = Laplace(trained(perceptron(1, 2), train, density, steps=300), "heteroscedastic")
        laplace.fit([train], progress=False)
        laplace.calibrate_conformal([(x[300 : 300 + known], y[300 : 300 + known])], progress=False)
        prediction = laplace.predict(held)
        for scale in widths:
            low, high = prediction.interval(0.9, scale=scale)
            widths[scale][seed] = (high - low).mean()
            shares[scale][seed] = ((low <= targets) & (targets <= high)).float().mean()
    error = 3.5 * math.sqrt(0.09 * (1 / known + 1 / fresh) / seeds)
    for share in shares.values():
        assert abs(float(share.mean()) - math.ceil((known + 1) * 0.9) / (known + 1)) < error
    narrower = widths["constant"] - widths["std"]
    assert narrower.mean() > 3.5 * narrower.std() / math.sqrt(seeds)


# ------------------------------------------------------------------------------------------------ with a Laplace


def classifier(**options: Any) -> tuple[Laplace, Data]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 4, generator=generator)
    y = (x[:, :3] + 0.7 * torch.randn(400, 3, generator=generator)).argmax(1)
    model = trained(perceptron(4, 3, hidden=8), (x[:100], y[:100]), nn.functional.cross_entropy, steps=60)
    return Laplace(model, "classification", **options).fit([(x[:100], y[:100])], progress=False), (x[100:], y[100:])


def regression(outputs: int = 1, **options: Any) -> tuple[Laplace, Data]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 2, generator=generator)
    y = torch.sin(x @ torch.randn(2, outputs, generator=generator)) + 0.3 * torch.randn(
        400, outputs, generator=generator
    )
    model = trained(perceptron(2, outputs, hidden=8), (x[:100], y[:100]), nn.functional.mse_loss, steps=60)
    return Laplace(model, "regression", **options).fit([(x[:100], y[:100])], progress=False), (x[100:], y[100:])


def calibration(laplace: Laplace) -> Conformal:
    assert laplace.conformal is not None
    return laplace.conformal


@pytest.mark.parametrize("kind", ["auto", "mc", "linear-mc"])
@pytest.mark.parametrize("make", [classifier, regression])
@pytest.mark.parametrize("method", ["grid", "random"])
def test_tuning_calibrates_as_a_prediction_of_the_same_data_does(make: Any, kind: str, method: str) -> None:
    laplace, (x, y) = make()
    val = [(x[:60], y[:60]), (x[60:100], y[60:100])]
    search = {"num_data": (50.0, 200.0)} if method == "random" else {}
    laplace.tune(val, kind=kind, samples=10, trials=3, method=method, progress=False, **search)
    tuned = calibration(laplace)
    laplace.calibrate_conformal(val, kind=kind, samples=10, progress=False)
    again = calibration(laplace)
    assert tuned.count == again.count == 100
    assert tuned.source != again.source
    assert tuned.made_by == again.made_by
    for name, scores in tuned.scores.items():
        assert_close(scores, again.scores[name], rtol=1e-3, atol=1e-4)
    assert tuned.novelty is not None
    assert again.novelty is not None
    assert_close(tuned.novelty, again.novelty)


def test_predictions_have_sets_and_intervals_of_the_calibration() -> None:
    laplace, (x, y) = classifier()
    laplace.tune([(x[:150], y[:150])], trials=3, progress=False)
    prediction, _ = laplace.predict_loader([x[150:200], x[200:]], progress=False)
    assert prediction.probs is not None
    conformal = calibration(laplace)
    for by in (None, "class"):
        assert torch.equal(prediction.set(0.8, by=by), conformal.set(prediction.probs, 0.8, by=by))
    expected = conformal.set(prediction.probs, 0.8, by="novelty", novelty=prediction.novelty)
    assert torch.equal(prediction.set(0.8, by="novelty"), expected)
    some = select_examples(prediction, torch.tensor([3, 1]))
    assert torch.equal(some.set(0.8), prediction.set(0.8)[[3, 1]])
    numbers, (x, y) = regression(2)
    numbers.tune([(x[:150], y[:150])], trials=3, progress=False)
    prediction = numbers.predict(x[150:])
    ends = calibration(numbers).interval(prediction.value, prediction.std, 0.8, joint=True)
    assert_close(prediction.interval(0.8, joint=True), ends)


@pytest.mark.parametrize("make", [classifier, regression])
def test_a_file_keeps_the_calibration(make: Any, tmp_path: Path) -> None:
    laplace, (x, y) = make()
    laplace.tune([(x[:150], y[:150])], trials=3, progress=False)
    laplace.save(tmp_path / "posterior.safetensors")
    loaded = infoform.load(tmp_path / "posterior.safetensors", laplace.model)
    for name, scores in calibration(laplace).scores.items():
        assert torch.equal(calibration(loaded).scores[name], scores)
    found, again = laplace.predict(x[150:]), loaded.predict(x[150:])
    if make is classifier:
        assert torch.equal(found.set(0.8, by="novelty"), again.set(0.8, by="novelty"))
    else:
        assert_close(found.interval(0.8, by="novelty"), again.interval(0.8, by="novelty"))


def test_a_calibration_is_not_taken_to_a_network_of_other_values(tmp_path: Path) -> None:
    laplace, (x, y) = classifier()
    laplace.tune([(x[:150], y[:150])], trials=3, progress=False)
    laplace.save(tmp_path / "posterior.safetensors")
    other = perceptron(4, 3, hidden=8)
    loaded = infoform.load(tmp_path / "posterior.safetensors", other, strict=False)
    assert loaded.conformal is None
    with pytest.raises(ValueError, match="loaded on a network with other values"):
        loaded.predict(x).set(0.9)


@pytest.mark.parametrize("change", ["prior_precision", "temperature", "num_data", "noise", "evidence", "structure"])
def test_a_change_of_hyperparameters_voids_the_calibration_and_changing_back_revives_it(change: str) -> None:
    laplace, (x, y) = (regression if change == "noise" else classifier)(fit_options=FitOptions(statistics="all"))
    laplace.tune([(x[:150], y[:150])], trials=3, progress=False)
    assert laplace.conformal is not None
    if change == "evidence":
        laplace.tune()
    elif change == "structure":
        laplace.settings = laplace.settings.__class__(**{**vars(laplace.settings), "structure": infoform.Diag()})
    else:
        before = getattr(laplace, change)
        setattr(laplace, change, 1.3 * before)
    assert laplace.conformal is None
    with pytest.raises(ValueError, match=r"changed since the calibration.*call tune\(val_loader\) or calibrate_conf"):
        laplace.predict(x).interval(0.9) if change == "noise" else laplace.predict(x).set(0.9)
    if change not in ("evidence", "structure"):
        setattr(laplace, change, before)
        assert laplace.conformal is not None


def test_a_fit_voids_the_calibration_and_other_percentiles_of_novelty_its_groups() -> None:
    laplace, (x, y) = classifier()
    laplace.tune([(x[:150], y[:150])], trials=3, progress=False)
    laplace.calibrate_novelty([(x[150:], y[150:])], progress=False)
    prediction = laplace.predict(x)
    assert prediction.set(0.8).shape == (300, 3)
    with pytest.raises(ValueError, match="calibrate after the last calibrate_novelty"):
        prediction.set(0.8, by="novelty")
    laplace.fit([(x, y)], progress=False)
    with pytest.raises(ValueError, match="no conformal calibration: nothing was calibrated"):
        laplace.predict(x).set(0.9)


def test_a_prediction_made_in_another_way_than_the_calibration_has_no_promise() -> None:
    laplace, (x, y) = classifier()
    laplace.tune([(x[:150], y[:150])], trials=3, progress=False)
    with pytest.raises(ValueError, match="made with kind='mc', samples=10, seed=0, and the calibration with kind='li"):
        laplace.predict(x, kind="mc", samples=10).set(0.9)
    with pytest.raises(ValueError, match="made with another posterior"):
        laplace.predict(x, posterior=laplace.posterior(prior_precision=3.0)).set(0.9)
    with pytest.raises(ValueError, match="link='probit'"):
        laplace.predict(x, link="probit").set(0.9)
    laplace.calibrate_conformal([(x[:150], y[:150])], link="probit", progress=False)
    assert laplace.predict(x, link="probit", samples=7, seed=3).set(0.9).shape == (300, 3)  # it draws nothing


def test_what_has_no_sets_or_intervals_says_so() -> None:
    laplace, (x, y) = classifier(fit_options=FitOptions(novelty=False))
    with pytest.raises(ValueError, match="needs targets, and the loader gives inputs alone"):
        laplace.calibrate_conformal([x], progress=False)
    laplace.calibrate_conformal([(x, y)], progress=False)
    with pytest.raises(ValueError, match="has no novelty"):
        laplace.predict(x).set(0.9, by="novelty")
    with pytest.raises(ValueError, match=r"regression predictions; a classifier has \.set"):
        laplace.predict(x).interval(0.9)
    with pytest.raises(ValueError, match="needs 999 or more calibration examples, got 300"):
        laplace.predict(x).set(0.999)
    numbers, (u, v) = regression()
    with pytest.raises(ValueError, match=r"nothing was calibrated.*gaussian_interval needs none"):
        numbers.predict(u).interval(0.9)
    numbers.calibrate_conformal([(u, v)], progress=False)
    with pytest.raises(ValueError, match=r"one of C classes; a regression has \.interval"):
        numbers.predict(u).set(0.9)


def test_yes_no_labels_are_refused_by_a_calibration_and_left_alone_by_tuning() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(60, 3), torch.randint(2, (60, 2)).float()
    laplace = Laplace(perceptron(3, 2, hidden=4), "multilabel").fit([(x, y)], progress=False)
    laplace.tune([(x, y)], trials=3, progress=False)
    assert laplace.conformal is None
    with pytest.raises(ValueError, match="C yes/no labels, for which there is no conformal calibration"):
        laplace.calibrate_conformal([(x, y)], progress=False)
    with pytest.raises(ValueError, match=r"yes/no labels have \.probs"):
        laplace.predict(x).set(0.9)
