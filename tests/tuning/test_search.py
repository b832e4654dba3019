"""A search keeps every trial, resumes, compares with the same random numbers, and takes the best pair."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import infoform
from infoform.metrics import evaluate
from infoform.tuning.search import METHODS, Search, Trial, best_trial, draw_landscape

Data = list[tuple[Tensor, Tensor]]


@pytest.fixture(scope="module")
def fitted() -> tuple[infoform.Laplace, Data]:
    torch.manual_seed(0)
    x = torch.randn(120, 2)
    y = (x[:, 0] * x[:, 1] > 0).long()
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(model.parameters(), 5e-2)
    for _ in range(150):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[:60]), y[:60]).backward()
        optimizer.step()
    laplace = infoform.Laplace(model, "classification").fit([(x[:60], y[:60])], progress=False)
    return laplace, [(x[60:90], y[60:90]), (x[90:], y[90:])]


def make_search(**changes: Any) -> Search:
    settings: dict[str, Any] = {
        "objective": "nll",
        "method": "grid",
        "trials": 12,
        "num_data": (10.0, 1000.0),
        "prior_precision": (1e-2, 1e2),
        "seed": 0,
        "path": None,
        "settings": {},
    }
    return Search(**(settings | changes))


def bowl(count: float, tau: float) -> Trial:
    return Trial(count, tau, {"nll": float(np.log(count / 100) ** 2 + np.log(tau / 3) ** 2)})


@pytest.mark.parametrize("method", METHODS)
def test_all_pairs_lie_within_the_bounds(method: str) -> None:
    trials = make_search(method=method, trials=20).run(bowl, lambda _: None)
    assert len(trials) == 20
    assert all(10 <= t.num_data <= 1000 * (1 + 1e-9) and 1e-2 <= t.prior_precision <= 1e2 * (1 + 1e-9) for t in trials)
    assert len({(trial.num_data, trial.prior_precision) for trial in trials}) == 20


def test_optuna_finds_the_bottom_better_than_chance() -> None:
    found = {
        method: best_trial(make_search(method=method, trials=40).run(bowl, lambda _: None), "nll").scores["nll"]
        for method in ("random", "optuna")
    }
    assert found["optuna"] < found["random"]


@pytest.mark.parametrize("method", METHODS)
def test_an_interrupted_search_resumes_where_it_stopped(method: str, tmp_path: Path) -> None:
    path = tmp_path / "trials.json"
    seen: list[tuple[float, float]] = []

    def interrupted(count: float, tau: float) -> Trial:
        if len(seen) == 5:
            raise KeyboardInterrupt
        seen.append((count, tau))
        return bowl(count, tau)

    with pytest.raises(KeyboardInterrupt):
        make_search(method=method, path=path).run(interrupted, lambda _: None)
    assert len(json.loads(path.read_text())["trials"]) == 5
    ticks: list[int] = []
    trials = make_search(method=method, path=path).run(bowl, ticks.append)
    assert [(trial.num_data, trial.prior_precision) for trial in trials[:5]] == seen
    assert len(trials) == len(ticks) == 12
    assert trials == make_search(method=method).run(bowl, lambda _: None)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("stop", [1, 13, 29])
def test_a_search_by_optuna_that_was_stopped_anywhere_ends_as_an_unbroken_one(stop: int, tmp_path: Path) -> None:
    def partly(count: float, tau: float) -> Trial:
        return Trial(count, tau, {"nll": math.inf}) if tau > 10 else bowl(count, tau)

    whole = make_search(method="optuna", trials=30).run(partly, lambda _: None)
    assert any(trial.scores["nll"] == math.inf for trial in whole)
    path = tmp_path / "trials.json"
    make_search(method="optuna", trials=30, path=path).write(whole[:stop])
    assert make_search(method="optuna", trials=30, path=path).run(partly, lambda _: None) == whole


def test_trials_that_optuna_does_not_propose_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "trials.json"
    search = make_search(method="optuna", path=path)
    search.write([bowl(3.0, 5.0)])
    with pytest.raises(ValueError, match=r"holds trials that this Optuna \(.*\) does not propose"):
        search.run(bowl, lambda _: None)


def test_trials_of_another_search_are_not_mixed_in(tmp_path: Path) -> None:
    path = tmp_path / "trials.json"
    make_search(path=path).run(bowl, lambda _: None)
    with pytest.raises(ValueError, match="other settings"):
        make_search(path=path, prior_precision=(1.0, 2.0)).run(bowl, lambda _: None)
    path.write_text("{}")
    with pytest.raises(ValueError, match="holds no trials"):
        make_search(path=path).run(bowl, lambda _: None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "guess"}, "method must be one of"),
        ({"objective": "luck"}, "objective .* must be one of"),
        ({"trials": 0}, "trials must be a whole number"),
        ({"prior_precision": (1.0, 0.1)}, r"prior_precision must be a range of positive numbers \(low, high\)"),
        ({"num_data": (0.0, 1.0)}, "num_data must be a range"),
    ],
)
def test_wrong_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_search(**changes)


def test_scores_that_are_not_finite_do_not_win() -> None:
    trials = [Trial(1, 1, {"nll": float("nan")}), Trial(1, 2, {"nll": 3.0}), Trial(1, 3, {"nll": float("inf")})]
    assert best_trial(trials, "nll").prior_precision == 2
    with pytest.raises(ValueError, match="larger prior precisions"):
        best_trial(trials[:1], "nll")


@pytest.mark.filterwarnings("ignore:.*at an end of the searched range")
def test_trials_on_other_validation_data_are_not_mixed_in(
    fitted: tuple[infoform.Laplace, Data], tmp_path: Path
) -> None:
    laplace, data = fitted
    options: dict[str, Any] = {"trials": 2, "path": tmp_path / "trials.json", "progress": False}
    laplace.tune(data, **options)
    laplace.tune(data, **options)
    with pytest.raises(ValueError, match="other settings"):
        laplace.tune([(x + 1, y) for x, y in data], **options)


@pytest.mark.filterwarnings("ignore:.*at an end of the searched range")
def test_tuning_sets_the_best_pair_and_keeps_all_trials(fitted: tuple[infoform.Laplace, Data]) -> None:
    laplace, data = fitted
    laplace.tune(data, trials=15, num_data=(6, 600), progress=False)
    best = min(laplace.trials, key=lambda trial: trial.scores["nll"])
    assert (laplace.num_data, laplace.prior_precision) == (best.num_data, best.prior_precision)
    assert len(laplace.trials) == 15
    prediction, targets = laplace.predict_loader(data, progress=False)  # both by their defaults
    assert targets is not None
    assert evaluate(prediction, targets)["nll"] == pytest.approx(best.scores["nll"], rel=1e-5)


@pytest.mark.filterwarnings("ignore:.*at an end of the searched range")
@pytest.mark.parametrize("kind", ["linear", "mc", "linear-mc"])
def test_two_searches_give_the_same_scores(fitted: tuple[infoform.Laplace, Data], kind: str) -> None:
    laplace, data = fitted
    first = laplace.tune(data, trials=3, kind=kind, objective="brier", progress=False).trials
    assert laplace.tune(data, trials=3, kind=kind, objective="brier", progress=False).trials == first


@pytest.mark.filterwarnings("ignore:.*at an end of the searched range")
def test_common_random_numbers_make_scores_smooth(fitted: tuple[infoform.Laplace, Data]) -> None:
    laplace, data = fitted
    laplace.tune(data, trials=2, prior_precision=(1.0, 1.0001), samples=5, progress=False)
    first, second = (trial.scores["nll"] for trial in laplace.trials)
    assert abs(first - second) < 1e-3 * abs(first)


def test_bad_requests_are_refused(fitted: tuple[infoform.Laplace, Data]) -> None:
    laplace, data = fitted
    with pytest.raises(ValueError, match="objective"):
        laplace.tune(objective="nll")
    with pytest.raises(ValueError, match="objective"):
        laplace.tune(data, objective="evidence", progress=False)
    with pytest.raises(ValueError, match="no examples"):
        laplace.tune([], progress=False)
    with pytest.raises(ValueError, match="validation loader gave none"):
        laplace.tune([data[0][0]], progress=False)
    with pytest.raises(RuntimeError, match="call fit"):
        infoform.Laplace(laplace.model, "classification").tune(data)


def test_a_best_pair_at_the_edge_of_the_range_is_told(fitted: tuple[infoform.Laplace, Data]) -> None:
    laplace, data = fitted
    with pytest.warns(UserWarning, match="at an end of the searched range"):
        laplace.tune(data, trials=3, prior_precision=(1e-7, 1e-5), progress=False)
    with pytest.warns(UserWarning, match="at an end of the searched range"):
        laplace.tune(data, trials=3, prior_precision=(1e6, 1e9), temperature=False, progress=False)
    search = make_search()
    assert [search.at_edge(tau) for tau in (1e-2, 1.0, 1e2)] == [True, False, True]


@pytest.mark.filterwarnings("ignore:.*at an end of the searched range")
def test_ece_is_not_for_regression() -> None:
    torch.manual_seed(0)
    data = [(torch.randn(20, 3), torch.randn(20, 1))]
    laplace = infoform.Laplace(nn.Linear(3, 1), "regression").fit(data, progress=False)
    laplace.tune(data, trials=3, progress=False)
    with pytest.raises(ValueError, match="'ece' is for classification"):
        laplace.tune(data, trials=3, objective="ece", progress=False)


def test_a_landscape_is_drawn(fitted: tuple[infoform.Laplace, Data], tmp_path: Path) -> None:
    trials = make_search().run(bowl, lambda _: None)
    draw_landscape([*trials, Trial(50.0, 1.0, {"nll": float("inf")})], "nll", tmp_path / "landscape.png")
    assert (tmp_path / "landscape.png").stat().st_size > 10_000
