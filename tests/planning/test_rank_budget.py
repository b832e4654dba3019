"""Spending a budget of bytes: prices against real posteriors, choices against trying all."""

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch

from curvatures import make_curvature, random_gradients
from infoform.curvature.curvature import Curvature
from infoform.planning.rank_budget import spend
from infoform.posteriors import Inf, InfPosterior, RankCurve
from infoform.priors import LayerPrior

OPTIONS: dict[str, dict[str, Any]] = {
    "ours": {"support": "top", "correction": "scaled", "core": "full", "storage": None},
    "bfloat16": {"support": "top", "correction": "scaled", "core": "full", "storage": "bfloat16"},
    "a diagonal core": {"support": "top", "correction": "scaled", "core": "diagonal", "storage": None},
    "a full core on a grid": {"support": "grid", "correction": "scaled", "core": "full", "storage": None},
    "paper": {"support": "grid", "correction": "additive", "core": "diagonal", "storage": None},
}


def layer(shape: tuple[int, int], *, columns: tuple[int, int] | None = None, seed: int = 0) -> Curvature:
    a, g = random_gradients(examples=20, shape=shape, seed=seed)
    curvature = make_curvature(a, g, basis_columns=columns)
    eigen = curvature.bases["gradient"]
    order = eigen.eigenvalues.flatten().argsort(descending=True)[: eigen.eigenvalues.numel() // 2]
    pairs = torch.stack([order // eigen.eigenvalues.shape[1], order % eigen.eigenvalues.shape[1]])
    measured = replace(eigen, core_pairs=pairs, core=torch.eye(len(order), dtype=torch.float64))
    return replace(curvature, bases={"gradient": measured})


def curve_of(curvature: Curvature, options: dict[str, Any], *, max_rank: int = 10**6) -> RankCurve:
    return Inf(**options).rank_curve(curvature, max_rank=max_rank)


def built(curvature: Curvature, rank: int, options: dict[str, Any]) -> InfPosterior:
    return Inf(rank=rank, **options).build(curvature, prior=LayerPrior(1.0), num_data=1.0)


@pytest.mark.parametrize("columns", [None, (2, 4)])
@pytest.mark.parametrize("name", OPTIONS)
def test_prices_and_worths_are_those_of_real_posteriors(name: str, columns: tuple[int, int] | None) -> None:
    curvature = layer((3, 5), columns=columns)
    curve = curve_of(curvature, OPTIONS[name])
    assert len(curve.nbytes) == (15 if columns is None else 8)
    for rank in range(1, len(curve.nbytes) + 1):
        real = built(curvature, rank, OPTIONS[name])
        assert int(curve.nbytes[rank - 1]) == real.nbytes
        assert float(curve.energy[rank - 1]) == pytest.approx(float(real.eigenvalues.sum()), rel=1e-12)
    assert curvature.diagonal is not None
    assert curve.total == pytest.approx(float(curvature.diagonal.sum()), rel=1e-9)  # the trace, in any basis


@pytest.mark.parametrize("name", OPTIONS)
def test_no_other_ranks_keep_more_but_for_the_step_that_did_not_fit(name: str) -> None:
    curves = {f"layer {i}": curve_of(layer(shape, seed=i), OPTIONS[name]) for i, shape in enumerate([(3, 5), (2, 3)])}
    all_ranks = list(itertools.product(*(range(len(curve.nbytes)) for curve in curves.values())))
    choices = [
        tuple(sum(float(curve[k]) for curve, k in zip(kind, ranks, strict=True)) for ranks in all_ranks)
        for kind in ([c.nbytes for c in curves.values()], [c.energy for c in curves.values()])
    ]
    prices, worths = choices
    for budget in range(int(min(prices)), int(max(prices)) + 1, 40):
        bought = spend(curves, budget)
        price, worth = sum(b.nbytes for b in bought.values()), sum(b.energy for b in bought.values())
        assert price <= budget
        best = max(w for p, w in zip(prices, worths, strict=True) if p <= budget)
        steps = [float(curve.energy.diff().max()) for curve in curves.values()]
        assert worth >= best - max(steps) - 1e-12


@pytest.mark.parametrize("name", OPTIONS)
def test_a_larger_budget_takes_nothing_away_from_any_layer(name: str) -> None:
    curves = {f"layer {i}": curve_of(layer((3, 4 + i), seed=i), OPTIONS[name]) for i in range(3)}
    least = sum(int(curve.nbytes[0]) for curve in curves.values())
    most = sum(int(curve.nbytes[-1]) for curve in curves.values())
    before = spend(curves, least)
    for budget in range(least, most + 50, 7):
        after = spend(curves, budget)
        assert sum(one.nbytes for one in after.values()) <= budget
        assert all(after[layer_name].rank >= before[layer_name].rank for layer_name in curves)
        assert all(after[layer_name].energy >= before[layer_name].energy for layer_name in curves)
        before = after
    for layer_name, curve in curves.items():
        assert before[layer_name].energy == pytest.approx(float(curve.energy[-1]), rel=1e-12)


def test_pairs_without_energy_are_not_bought() -> None:
    a, g = random_gradients(examples=1, shape=(3, 5), positions=1)
    curve = curve_of(make_curvature(a, g), OPTIONS["ours"])  # one gradient: one pair holds it all, but for rounding
    bought = spend({"layer": RankCurve(curve.nbytes, curve.energy.round(decimals=6), curve.total)}, 10**9)["layer"]
    assert bought.rank == 1


def test_no_rank_above_the_largest_is_bought() -> None:
    for name, options in OPTIONS.items():
        curvature = layer((3, 5))
        rank = spend({"layer": curve_of(curvature, options, max_rank=6)}, 10**9)["layer"].rank
        real = built(curvature, rank, options)
        assert real.rank <= 6, name


def test_a_budget_too_small_names_the_least() -> None:
    curves = {"layer": curve_of(layer((3, 5)), OPTIONS["ours"])}
    least = int(curves["layer"].nbytes[0])
    assert spend(curves, least)["layer"].rank == 1
    with pytest.raises(ValueError, match=f"memory must be at least {least} bytes .* got {least - 1};"):
        spend(curves, least - 1)
