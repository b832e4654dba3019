"""Successive halving: pairs that fall behind are dropped, and the best of all data is that of an exhaustive search."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import infoform
from infoform.predicting.predictor import KINDS
from infoform.tuning.halving import Round, halve, rounds
from infoform.tuning.search import Trial

Data = list[tuple[Tensor, Tensor]]
PLAN = [Round(8, 4, 1), Round(3, 2, 1), Round(1, 1, 2)]
PAIRS = [(1.0, float(tau)) for tau in range(8)]
pytestmark = [
    pytest.mark.filterwarnings("ignore:the best prior_precision"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated"),  # by torch's own jvp, once
]


def trial_of(count: float, tau: float, current: Round) -> Trial:
    """Return a trial whose score is rough in early rounds."""
    return Trial(
        count,
        tau,
        {"nll": abs(tau - 4.2) + current.step % 3},
        examples=None if current.step == 1 else 8 // current.step,
    )


def test_only_the_better_pairs_meet_more_data() -> None:
    trials = halve(trial_of, PAIRS, PLAN, objective="nll")
    assert [trial.prior_precision for trial in trials] == [tau for _, tau in PAIRS]
    assert [trial.examples for trial in trials] == [2, 2, 2, 4, None, 4, 2, 2]


@pytest.mark.parametrize("stop", range(1, 12))
def test_an_interrupted_search_goes_on_where_it_stopped(stop: int) -> None:
    kept: list[Trial] = []
    calls: list[tuple[float, Round]] = []

    def score(count: float, tau: float, current: Round) -> Trial:
        if len(calls) == stop:
            raise KeyboardInterrupt
        calls.append((tau, current))
        return trial_of(count, tau, current)

    def keep(trials: list[Trial]) -> None:
        kept[:] = trials

    with pytest.raises(KeyboardInterrupt):
        halve(score, PAIRS, PLAN, objective="nll", keep=keep)
    first, stop = list(calls), 99
    found = halve(score, PAIRS, PLAN, objective="nll", done=list(kept), keep=keep)
    assert found == halve(trial_of, PAIRS, PLAN, objective="nll")
    assert len(calls) == 12
    assert calls[: len(first)] == first


def test_rounds_of_many_and_of_few_data() -> None:
    assert rounds(pairs=100, examples=200, samples=5) == [Round(100, 10, 1), Round(20, 4, 2), Round(5, 1, 5)]
    assert rounds(pairs=100, examples=12, samples=5) == [Round(100, 1, 5)]
    assert rounds(pairs=2, examples=1000, samples=1) == [Round(2, 10, 1), Round(2, 4, 1), Round(2, 1, 1)]
    cost = sum(one.pairs * one.samples / one.step for one in rounds(pairs=100, examples=10_000, samples=100)) / 100
    assert cost == pytest.approx(9.0)


@pytest.fixture(scope="module")
def fitted() -> tuple[infoform.Laplace, Data]:
    torch.manual_seed(0)
    x = torch.randn(360, 3)
    y = (x[:, 0] * x[:, 1] + 0.5 * torch.randn(360) > 0).long()
    model = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(model.parameters(), 5e-2)
    for _ in range(150):
        optimizer.zero_grad()
        functional.cross_entropy(model(x[:60]), y[:60]).backward()
        optimizer.step()
    laplace = infoform.Laplace(model, "classification").fit([(x[:60], y[:60])], progress=False)
    return laplace, list(zip(x[60:].split(100), y[60:].split(100), strict=True))


@pytest.mark.parametrize("temperature", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_pair_taken_is_scored_on_all_data_and_nearly_the_best(
    fitted: tuple[infoform.Laplace, Data], kind: str, temperature: bool
) -> None:
    laplace, data = fitted
    options: dict[str, Any] = {
        "num_data": (6.0, 600.0), "prior_precision": (1e-3, 1e3), "trials": 40, "kind": kind, "samples": 20,
        "temperature": temperature, "progress": False,
    }  # fmt: skip
    laplace.tune(data, method="halving", **options)
    found, best = laplace.trials, min((t for t in laplace.trials if t.examples is None), key=lambda t: t.scores["nll"])
    assert (laplace.num_data, laplace.prior_precision) == (best.num_data, best.prior_precision)
    assert sorted({trial.examples for trial in found if trial.examples is not None}) == [30, 75]
    assert laplace.plain_trial is not None
    assert laplace.plain_trial.examples is None
    every = laplace.tune(data, method="random", **options).trials
    assert [t.prior_precision for t in every] == [t.prior_precision for t in found]
    exact = {trial.prior_precision: trial.scores["nll"] for trial in every}
    assert exact[best.prior_precision] == pytest.approx(best.scores["nll"], rel=1e-9)
    assert best.scores["nll"] <= min(exact.values()) + 0.02


def test_halving_keeps_its_trials_and_refuses_another_objective(
    fitted: tuple[infoform.Laplace, Data], tmp_path: Path
) -> None:
    laplace, data = fitted
    options: dict[str, Any] = {"method": "halving", "trials": 12, "path": tmp_path / "t.json", "progress": False}
    first = laplace.tune(data, **options).trials
    assert laplace.tune(data, **options).trials == first
    with pytest.raises(ValueError, match="other settings"):
        laplace.tune(data, objective="brier", **options)


def test_bad_data_are_refused_before_any_pair_is_scored(
    fitted: tuple[infoform.Laplace, Data], monkeypatch: pytest.MonkeyPatch
) -> None:
    laplace, data = fitted
    x, y = (torch.cat(parts) for parts in zip(*data, strict=True))
    before = laplace.prior_precision
    bad = x.clone()
    bad[7, 0] = torch.nan
    for given, message in (([(bad, y)], "must be finite on validation data"), ([x], "validation loader gave none")):
        with pytest.raises(ValueError, match=message):
            laplace.tune(given, method="halving", progress=False)
    assert laplace.prior_precision == before
