"""τ and a temperature found together: no worse than a temperature alone, which stands beside them."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import infoform
from infoform.metrics import ece, evaluate
from infoform.posteriors import STRUCTURES
from infoform.predicting.predictor import KINDS
from infoform.tuning.losses import TERMS, Answers
from infoform.tuning.temperature import best_temperature

Data = list[tuple[Tensor, Tensor]]
pytestmark = [
    pytest.mark.filterwarnings("ignore:the best prior_precision"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated"),  # by torch's own jvp, once
]


def overfitted(scale: float = 1.0) -> tuple[nn.Module, Data, Data]:
    """Return a network that is too sure of noisy labels (or, scaled, not sure enough), training and validation data."""
    torch.manual_seed(0)
    x = torch.randn(160, 2, dtype=torch.float64)
    y = (x[:, 0] * x[:, 1] > 0).long() ^ (torch.rand(160) < 0.15).long()
    model = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 2)).double()
    optimizer = torch.optim.Adam(model.parameters(), 5e-2)
    for _ in range(200):
        optimizer.zero_grad()
        functional.cross_entropy(model(x[:80]), y[:80]).backward()
        optimizer.step()
    with torch.no_grad():
        for parameter in model[2].parameters():
            parameter.mul_(scale)
    return model, [(x[:80], y[:80])], [(x[80:120], y[80:120]), (x[120:], y[120:])]


def by_temperature_alone(model: nn.Module, data: Data, objective: str) -> tuple[float, float]:
    """Return the best temperature and its score, of ten thousand (of a thousand for ECE, which is slow)."""
    x, y = (torch.cat(parts) for parts in zip(*data, strict=True))
    temperatures = torch.linspace(-2.7, 2.7, 1_001 if objective == "ece" else 10_001, dtype=torch.float64).exp()
    probs = (model(x).detach() / temperatures[:, None, None]).softmax(-1)  # (T, N, C)
    if objective == "nll":
        scores = -probs[:, torch.arange(len(y)), y].log().mean(1)
    elif objective == "brier":
        scores = (probs - functional.one_hot(y, 2)).square().sum(-1).mean(1)
    else:
        scores = torch.tensor([ece(one, y) for one in probs])
    best = int(scores.argmin())
    return float(temperatures[best]), float(scores[best])


@pytest.mark.parametrize("objective", ["nll", "brier", "ece"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("structure", STRUCTURES)
def test_the_best_score_is_never_above_that_of_a_temperature_alone(structure: str, kind: str, objective: str) -> None:
    model, train, validation = overfitted()
    _, reference = by_temperature_alone(model, validation, objective)
    laplace = infoform.Laplace(model, "classification", structure=structure).fit(train, progress=False)
    options: dict[str, Any] = {"kind": kind, "samples": 30}
    laplace.tune(validation, objective=objective, trials=9, **options, progress=False)
    assert laplace.plain_trial is not None
    plain = laplace.plain_trial.scores[objective]
    # the calibration error is not smooth, and has several valleys
    assert plain == pytest.approx(reference, abs=2e-2 if objective == "ece" else 1e-6)
    found = min(trial.scores[objective] for trial in laplace.trials)
    assert min(found, plain) <= reference + (2e-2 if objective == "ece" else 1e-6)
    assert ("does not improve" in laplace.tuning_note) == (plain <= found)
    taken = next(trial for trial in laplace.trials if trial.prior_precision == laplace.prior_precision)
    prediction, targets = laplace.predict_loader(validation, **options, progress=False)
    assert targets is not None
    # rounding may move an example to the next bin of the calibration error
    abs_error = 5e-3 if objective == "ece" else 1e-7
    assert evaluate(prediction, targets)[objective] == pytest.approx(taken.scores[objective], rel=1e-5, abs=abs_error)
    if objective != "ece":
        assert_as_good(laplace, validation, objective, options, best=min(found, plain))


def assert_as_good(
    laplace: infoform.Laplace, data: Data, objective: str, options: dict[str, Any], *, best: float
) -> None:
    """Check that the choice is within a standard error of the best, by the closed form of the error of a mean."""
    _, y = (torch.cat(parts) for parts in zip(*data, strict=True))

    def losses(probs: Tensor) -> Tensor:
        if objective == "nll":
            return -probs[torch.arange(len(y)), y].log()
        return (probs - functional.one_hot(y, 2)).square().sum(1)

    taken = laplace.predict_loader(data, **options, progress=False)[0].probs
    assert taken is not None
    assert laplace.plain_trial is not None
    x = torch.cat([inputs for inputs, _ in data])
    rivals = [(laplace.model(x).detach() / laplace.plain_trial.temperature).softmax(1)]
    tau, temperature = laplace.prior_precision, laplace.temperature
    least = min(laplace.trials, key=lambda trial: trial.scores[objective])
    laplace.prior_precision, laplace.temperature = least.prior_precision, least.temperature
    probs = laplace.predict_loader(data, **options, progress=False)[0].probs
    assert probs is not None
    rivals.append(probs)
    laplace.prior_precision, laplace.temperature = tau, temperature
    rival = min(rivals, key=lambda one: float(losses(one).mean()))
    difference = losses(taken) - losses(rival)
    error = float(difference.std()) / len(y) ** 0.5
    assert float(losses(rival).mean()) == pytest.approx(best, abs=1e-4)
    assert float(difference.mean()) <= 1.15 * error + 1e-9  # a bootstrap's error is off by some per cent


def test_an_overconfident_network_is_made_less_sure_and_an_underconfident_one_surer() -> None:
    for scale, surer in ((1.0, False), (0.05, True)):
        model, train, validation = overfitted(scale)
        laplace = infoform.Laplace(model, "classification").fit(train, progress=False)
        laplace.tune(validation, trials=5, prior_precision=(1e5, 1e6), progress=False)
        expected, _ = by_temperature_alone(model, validation, "nll")
        assert (expected < 1) == surer
        assert laplace.temperature == pytest.approx(expected, rel=0.02)


def test_several_labels_have_a_temperature_too() -> None:
    model, train, validation = overfitted()
    first, second = ([(x, functional.one_hot(y, 2).double()) for x, y in data] for data in (train, validation))
    laplace = infoform.Laplace(model, "multilabel").fit(first, progress=False)
    laplace.tune(second, trials=3, progress=False)
    assert laplace.temperature != 1
    assert laplace.plain_trial is not None


def test_trials_keep_their_temperatures_and_a_search_goes_on(tmp_path: Path) -> None:
    model, train, validation = overfitted()
    path = tmp_path / "trials.json"
    first = infoform.Laplace(model, "classification").fit(train, progress=False)
    first.tune(validation, trials=4, method="random", path=path, progress=False)
    kept = json.loads(path.read_text())["trials"]
    assert [trial["temperature"] for trial in kept] == [trial.temperature for trial in first.trials]
    again = infoform.Laplace(model, "classification").fit(train, progress=False)
    again.tune(validation, trials=4, method="random", path=path, progress=False)
    assert again.trials == first.trials
    assert again.prior_precision == first.prior_precision
    assert (again.temperature, again.plain_trial) == (first.temperature, first.plain_trial)
    with pytest.raises(ValueError, match="other settings"):
        again.tune(validation, temperature=False, trials=4, method="random", path=path, progress=False)


def test_without_it_a_search_leaves_the_temperature_alone() -> None:
    model, train, validation = overfitted()
    laplace = infoform.Laplace(model, "classification").fit(train, progress=False)
    laplace.tune(validation, temperature=False, trials=3, progress=False)
    assert laplace.temperature == 1
    assert all(trial.temperature == 1 for trial in laplace.trials)
    assert laplace.plain_trial is not None
    assert laplace.plain_trial.temperature == 1


def test_regression_and_evidence_have_none() -> None:
    torch.manual_seed(0)
    data = [(torch.randn(20, 3), torch.randn(20, 1))]
    laplace = infoform.Laplace(nn.Linear(3, 1), "regression").fit(data, progress=False)
    with pytest.raises(ValueError, match="temperature=True is for logits, and the outputs of the regression"):
        laplace.tune(data, temperature=True, progress=False)
    with pytest.raises(ValueError, match=r"temperature \(without val_loader\) must be one of False"):
        laplace.tune(temperature=True)


@pytest.mark.parametrize("objective", TERMS)
def test_terms_of_examples_make_the_score(objective: str) -> None:
    model, _, validation = overfitted()
    x, y = validation[0]
    one = infoform.Classification().plain_prediction(model(x).detach(), noise=None)
    labels = functional.one_hot(y, 2).double()
    several = infoform.MultiLabel().plain_prediction(model(x).detach(), noise=None)
    for prediction, targets in ((one, y), (several, labels)):
        found = TERMS[objective](Answers.of(prediction), targets).score()
        # torchmetrics finds the calibration error in float32
        rel = 1e-6 if objective == "ece" else 1e-9
        assert found == pytest.approx(evaluate(prediction, targets)[objective], rel=rel)


def test_the_least_of_a_smooth_loss_is_found() -> None:
    for best in (0.3, 1.0, 4.0):

        def bowl(temperature: float, best: float = best) -> float:
            return math.log(temperature / best) ** 2

        assert best_temperature(bowl) == pytest.approx(best, rel=2e-3)
    assert best_temperature(lambda _: math.inf) == 1.0


@pytest.mark.parametrize("best", [0.5, 1.0, 1.03, 1.12, 1.3, 2.7, 6.0])
@pytest.mark.parametrize("guess", [0.7, 0.95, 1.0, 1.3, 4.0])
def test_a_good_guess_saves_most_of_the_search(best: float, guess: float) -> None:
    """A skewed valley, as that of NLL: its bottom is found within what 2 % of T change, from near or from afar."""
    calls: list[float] = []

    def valley(value: float) -> float:
        calls.append(value)
        distance = math.log(value / best)
        return 0.3 * (math.exp(distance) - distance)

    for least in (1 / 16, min(best, 1.0)):
        calls.clear()
        found = best_temperature(valley, near=guess * best, least=least)
        assert found >= least * (1 - 1e-9)
        assert found == pytest.approx(best, rel=2e-2)
        assert valley(found) - valley(best) < 5e-5
        assert len(calls) < 10 or guess in (0.7, 4.0)
    assert best_temperature(valley, near=guess * best, least=min(1.0, 1.2 * best)) >= min(1.0, 1.2 * best) * (1 - 1e-9)


def test_a_temperature_that_is_not_searched_stays_and_counts() -> None:
    """Trials of τ alone are scored at the temperature that predictions have."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 3))
    x, y = torch.randn(90, 4), torch.randint(3, (90,))
    laplace = infoform.Laplace(model, "classification").fit([(x[:40], y[:40])], progress=False)
    laplace.temperature = 3.0
    laplace.tune([(x[40:], y[40:])], temperature=False, progress=False)
    assert laplace.temperature == 3.0
    taken = next(trial for trial in laplace.trials if trial.prior_precision == laplace.prior_precision)
    probs = laplace.predict(x[40:]).probs
    assert probs is not None
    assert taken.temperature == 3.0
    assert taken.scores["nll"] == pytest.approx(float(functional.nll_loss(probs.log(), y[40:])), rel=1e-5)


def test_answers_that_are_all_right_are_sharpened_no_further_than_one_mistake_allows() -> None:
    torch.manual_seed(0)
    x = torch.randn(80, 2, dtype=torch.float64)
    y = (x[:, 0] > 0).long()
    model = nn.Linear(2, 2).double()
    with torch.no_grad():  # right everywhere, and not very sure: the loss falls as T goes to 0
        model.weight.copy_(torch.tensor([[-1.0, 0.0], [1.0, 0.0]]))
        model.bias.zero_()
    laplace = infoform.Laplace(model, "classification").fit([(x[:40], y[:40])], progress=False)
    laplace.tune([(x[40:], y[40:])], progress=False)
    logits = model(x[40:]).detach()

    def expected(temperature: float) -> float:  # the loss, if one of so many answers were wrong
        logs = (logits / temperature).log_softmax(1)
        right, wrong = (-logs.gather(1, one[:, None]).mean() for one in (y[40:], 1 - y[40:]))
        return float(right + wrong / len(logits))

    grid = torch.logspace(-1.2, 1.2, 2001, dtype=torch.float64).tolist()
    assert laplace.plain_trial is not None
    assert laplace.plain_trial.temperature == pytest.approx(min(grid, key=expected), rel=0.01)
    assert 1 / 16 < laplace.plain_trial.temperature < 1


def test_labels_that_are_all_right_are_not_sharpened() -> None:
    """Several labels an example: which of them would be the mistake is not said, so their loss falls for ever."""
    torch.manual_seed(0)
    x = torch.randn(80, 2, dtype=torch.float64)
    y = (x > 0).double()
    model = nn.Linear(2, 2).double()
    with torch.no_grad():
        model.weight.copy_(torch.eye(2))
        model.bias.zero_()
    laplace = infoform.Laplace(model, "multilabel").fit([(x[:40], y[:40])], progress=False)
    laplace.tune([(x[40:], y[40:])], progress=False)
    assert laplace.plain_trial is not None
    assert laplace.plain_trial.temperature >= 1
    assert laplace.temperature >= 1


def test_answers_that_are_all_right_are_not_taken_at_their_word() -> None:
    torch.manual_seed(1)
    x = torch.randn(120, 2, dtype=torch.float64) + torch.tensor([[4.0, 0.0]]) * (
        1 - 2 * (torch.arange(120) % 2)[:, None]
    )
    y = torch.arange(120) % 2
    model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2)).double()
    optimizer = torch.optim.Adam(model.parameters(), 5e-2)
    for _ in range(100):
        optimizer.zero_grad()
        functional.cross_entropy(model(x[:60]), y[:60]).backward()
        optimizer.step()
    laplace = infoform.Laplace(model, "classification").fit([(x[:60], y[:60])], progress=False)
    laplace.tune([(x[60:], y[60:])], progress=False)
    assert bool((model(x[60:]).argmax(1) == y[60:]).all())
    # the loss with one expected mistake, by hand, is less than that of the network alone
    prediction = laplace.predict(x[60:])
    assert prediction.probs is not None

    def expected(probs: Tensor) -> float:
        second = model(x[60:]).argmin(1)
        right, wrong = (-probs.gather(1, one[:, None]).log().mean() for one in (y[60:], second))
        return float((right + wrong / len(second)).detach())

    assert expected(prediction.probs) < expected(model(x[60:]).softmax(1))
