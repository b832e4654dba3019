"""A search predicts all data at few τ, and finds what an exhaustive search finds."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import infoform
from infoform.predicting.over_loader import outputs_under
from infoform.predicting.predictor import KINDS
from infoform.tuning import trial_outputs
from infoform.tuning.trial_outputs import TrialOutputs

Data = list[tuple[Tensor, Tensor]]
pytestmark = [
    pytest.mark.filterwarnings("ignore:the best prior_precision"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated"),  # by torch's own jvp, once
]


def trained(*, images: bool = False, seed: int = 0) -> tuple[nn.Module, Data, Data]:
    """Return a network that is too sure of three noisy classes, training data and 600 validation data."""
    torch.manual_seed(seed)
    x = torch.randn(760, 16)
    teacher = nn.Sequential(nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, 3))
    y = torch.distributions.Categorical(logits=6 * teacher(x).detach()).sample()
    model: nn.Module = nn.Sequential(nn.Linear(16, 20), nn.ReLU(), nn.Linear(20, 3))
    if images:
        x = x.reshape(-1, 1, 4, 4)
        model = nn.Sequential(
            nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 3)
        )
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(120):
        optimizer.zero_grad()
        functional.cross_entropy(model(x[:160]), y[:160]).backward()
        optimizer.step()
    return model, [(x[:160], y[:160])], list(zip(x[160:].split(100), y[160:].split(100), strict=True))


def place(laplace: infoform.Laplace) -> int:
    return next(i for i, t in enumerate(laplace.trials) if t.prior_precision == laplace.prior_precision)


def exhaustively(laplace: infoform.Laplace, data: Data, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(trial_outputs, "SMALL_WORK", math.inf)
        laplace.tune(data, **options, progress=False)
    assert not any(trial.estimated for trial in laplace.trials)


@pytest.fixture(autouse=True)
def estimating(monkeypatch: pytest.MonkeyPatch) -> None:
    """Search these small networks as large ones are searched."""
    monkeypatch.setattr(trial_outputs, "SMALL_WORK", 0)


def test_small_networks_are_searched_exhaustively(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    model, train, validation = trained()
    laplace = infoform.Laplace(model, "classification").fit(train, progress=False)
    for kind in KINDS:
        laplace.tune(validation, kind=kind, progress=False)
        assert not any(trial.estimated for trial in laplace.trials)


@pytest.mark.parametrize("images", [False, True])
@pytest.mark.parametrize("structure", ["inf", "kfac", "diag"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_choice_is_that_of_an_exhaustive_search(
    kind: str, structure: str, images: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, train, validation = trained(images=images)
    laplace = infoform.Laplace(model, "classification", structure=structure).fit(train, progress=False)
    laplace.tune(validation, kind=kind, progress=False)
    found, quick = place(laplace), laplace.trials
    assert any(trial.estimated for trial in quick)
    exhaustively(laplace, validation, monkeypatch, kind=kind)
    exact = laplace.trials
    taken = place(laplace)
    if kind == "linear":
        assert abs(found - taken) <= 1
    else:  # two τ may lie on either side of one standard error; then it must be the one with the better score
        assert abs(found - taken) <= 1 or exact[found].scores["nll"] < exact[taken].scores["nll"]
    assert quick[found].scores["nll"] == pytest.approx(exact[found].scores["nll"], abs=5e-4)
    if kind == "linear":
        least, true = (min(trial.scores["nll"] for trial in trials) for trials in (quick, exact))
        assert least == pytest.approx(true, abs=5e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_all_data_are_predicted_at_few_precisions(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, train, validation = trained()
    laplace = infoform.Laplace(model, "classification").fit(train, progress=False)
    sizes: list[tuple[float, int]] = []
    samples = 100
    predict: Callable[..., Any] = outputs_under

    def counted(predictor: Any, posteriors: Any, batches: Any, options: Any, **rest: Any) -> Any:
        networks = 1.0 if kind == "linear" else options.samples / samples
        sizes.append((networks * len(posteriors), sum(len(batch.targets) for batch in batches)))
        return predict(predictor, posteriors, batches, options, **rest)

    monkeypatch.setattr(trial_outputs, "outputs_under", counted)
    laplace.tune(validation, kind=kind, samples=samples, progress=False)
    assert sum(count for count, examples in sizes if examples == 600) <= 3
    assert sum(count for count, examples in sizes if examples < 600) < 20
    assert len(laplace.trials) == 27


def test_an_interrupted_search_does_not_predict_the_same_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, train, validation = trained()
    path = tmp_path / "trials.json"
    first = infoform.Laplace(model, "classification").fit(train, progress=False)
    whole = TrialOutputs.predict_all

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(TrialOutputs, "predict_all", interrupted)
    with pytest.raises(KeyboardInterrupt):
        first.tune(validation, path=path, progress=False)
    monkeypatch.setattr(TrialOutputs, "predict_all", whole)
    predicted: list[int] = []
    predict: Callable[..., Any] = outputs_under

    def counted(predictor: Any, posteriors: Any, batches: Any, options: Any, **rest: Any) -> Any:
        predicted.append(sum(len(batch.targets) for batch in batches))
        return predict(predictor, posteriors, batches, options, **rest)

    monkeypatch.setattr(trial_outputs, "outputs_under", counted)
    first.tune(validation, path=path, progress=False)
    assert 600 in predicted
    assert len([examples for examples in predicted if examples < 600]) <= 1  # a choice beside those of the part
    again = infoform.Laplace(model, "classification").fit(train, progress=False)
    again.tune(validation, progress=False)
    assert again.trials == first.trials
    assert list(tmp_path.iterdir()) == [path]
    assert len(json.loads(path.read_text())["trials"]) == 27


def test_exact_trials_are_as_many_as_asked_for_at_most() -> None:
    model, train, validation = trained()
    laplace = infoform.Laplace(model, "classification").fit(train, progress=False)
    for kind, most in (("linear", 1), ("mc", 1), ("mc", 6), ("linear-mc", 26)):
        laplace.tune(validation, kind=kind, samples=10, exact_trials=most, progress=False)
        exact = [trial for trial in laplace.trials if not trial.estimated]
        assert 1 <= len(exact) <= most
        assert kind == "linear" or not laplace.trials[place(laplace)].estimated
    refused: list[Any] = [0, -1, 2.0, True]
    for bad in refused:
        with pytest.raises(ValueError, match="exact_trials must be a whole number of at least 1"):
            laplace.tune(validation, exact_trials=bad, progress=False)


@pytest.mark.parametrize("kind", KINDS)
def test_as_many_exact_trials_as_trials_are_an_exhaustive_search(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, train, validation = trained()
    laplace = infoform.Laplace(model, "classification").fit(train, progress=False)
    options: dict[str, Any] = {"kind": kind, "samples": 10, "trials": 9}
    asked = laplace.tune(validation, exact_trials=9, **options, progress=False).trials
    assert not any(trial.estimated for trial in asked)
    exhaustively(laplace, validation, monkeypatch, **options)
    assert laplace.trials == asked


@pytest.mark.parametrize("structure", ["inf", "kfac", "diag", "efb"])
def test_some_exact_trials_find_the_best_of_few_sampled_networks(structure: str) -> None:
    model, train, validation = trained(images=True)
    laplace = infoform.Laplace(model, "classification", structure=structure).fit(train, progress=False)
    options: dict[str, Any] = {"kind": "mc", "samples": 6, "trials": 27, "temperature": False, "standard_errors": 0}
    laplace.tune(validation, exact_trials=8, **options, progress=False)
    found = place(laplace)
    laplace.tune(validation, exact_trials=27, **options, progress=False)
    scores = [trial.scores["nll"] for trial in laplace.trials]
    assert scores[found] == pytest.approx(min(scores), abs=5e-4)


def test_an_unsorted_list_of_precisions_is_predicted_whole() -> None:
    model, train, validation = trained()
    laplace = infoform.Laplace(model, "classification").fit(train, progress=False)
    laplace.tune(validation, method="random", trials=9, progress=False)
    assert not any(trial.estimated for trial in laplace.trials)
