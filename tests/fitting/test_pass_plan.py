"""The plan of a fit is a table: what is asked for, and how, says what every pass sums over which examples."""

from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from infoform.curvature.request import ALL_STATISTICS, FitSettings, StatisticsRequest
from infoform.fitting.pass_plan import LayerPass, PassPlan, Statistic, held_statistics, layer_passes, plan_passes

INPUTS, OUTPUTS, MOMENTS = Statistic.INPUTS, Statistic.OUTPUT_GRADIENTS, Statistic.MOMENTS
DIAGONAL, BLOCK, PROJECTIONS = Statistic.DIAGONAL, Statistic.BLOCK, Statistic.PROJECTIONS
GRADIENT, ACTIVATION = frozenset({"gradient"}), frozenset({"activation"})
INF = StatisticsRequest(diagonal=True, bases=GRADIENT, cores=("gradient",), core_size=9)
LAYERS = ("first", "last")


def same(sums: LayerPass, **options: Any) -> PassPlan:
    """Return the plan of a pass that sums the same for every layer."""
    return PassPlan(dict.fromkeys(LAYERS, sums), **options)


ONE_PASS = {
    "diag": (StatisticsRequest(diagonal=True), (DIAGONAL,)),
    "kfac": (StatisticsRequest(factors=True), (INPUTS, OUTPUTS)),
    "full": (StatisticsRequest(block=True), (BLOCK,)),
    "diag with an activation prior": (StatisticsRequest(diagonal=True, inputs=True), (INPUTS, DIAGONAL)),
}
TWO_PASSES: dict[str, tuple[StatisticsRequest, dict[str, Any], PassPlan, PassPlan]] = {
    "efb": (
        StatisticsRequest(bases=GRADIENT),
        {},
        same(LayerPass((MOMENTS,))),
        same(LayerPass((PROJECTIONS,)), scored=False, checked=True),
    ),
    "efb in the activation basis": (
        StatisticsRequest(bases=ACTIVATION),
        {},
        same(LayerPass((INPUTS, OUTPUTS))),
        same(LayerPass((PROJECTIONS,)), scored=False, checked=True),
    ),
    "all statistics": (
        ALL_STATISTICS,
        {},
        same(LayerPass((INPUTS, OUTPUTS, MOMENTS))),
        same(LayerPass((DIAGONAL, BLOCK, PROJECTIONS)), scored=False, checked=True),
    ),
    "bases from every example": (
        INF | StatisticsRequest(inputs=True),
        {"basis_floor": 0.0},
        same(LayerPass((INPUTS, MOMENTS))),
        same(LayerPass((DIAGONAL, PROJECTIONS)), scored=False, checked=True),
    ),
    "bases from selected examples": (
        INF | StatisticsRequest(inputs=True, block=True),
        {},
        same(LayerPass((INPUTS,), selected=(MOMENTS,), once=(DIAGONAL, BLOCK))),
        same(LayerPass((PROJECTIONS,), once=(DIAGONAL, BLOCK)), rereads=True, scored=False, checked=True),
    ),
    "bases from a share of the batches": (
        INF | StatisticsRequest(inputs=True),
        {"basis_floor": 0.0, "basis_data": 0.25},
        same(LayerPass((MOMENTS,)), share=0.25, scored=False),
        same(LayerPass((INPUTS, DIAGONAL, PROJECTIONS))),
    ),
    "bases from selected examples of a share of the batches": (
        INF | StatisticsRequest(inputs=True),
        {"basis_data": 0.25},
        same(LayerPass(selected=(MOMENTS,)), share=0.25, scored=False),
        same(LayerPass((INPUTS, DIAGONAL), selected=(PROJECTIONS,))),
    ),
    "several Fisher vectors select no examples": (
        INF,
        {"fisher": "exact"},
        same(LayerPass((MOMENTS,))),
        same(LayerPass((DIAGONAL, PROJECTIONS)), scored=False, checked=True),
    ),
}


@pytest.mark.parametrize("case", ONE_PASS)
@pytest.mark.parametrize("known", [None, LAYERS, ()], ids=["a first fit", "an update", "an update of nothing"])
def test_a_fit_without_bases_is_one_pass(case: str, known: tuple[str, ...] | None) -> None:
    request, summed = ONE_PASS[case]
    settings = FitSettings(basis_data=0.25)  # which is of bases alone
    assert plan_passes(LAYERS, request, settings, known=known) == (same(LayerPass(summed)),)


@pytest.mark.parametrize("case", TWO_PASSES)
def test_a_fit_with_bases_is_two_passes(case: str) -> None:
    request, options, first, second = TWO_PASSES[case]
    assert plan_passes(LAYERS, request, FitSettings(**options)) == (first, second)


@pytest.mark.parametrize("options", [{}, {"basis_data": 0.25}, {"basis_floor": 0.0}], ids=str)
def test_an_update_measures_every_example_along_known_bases_in_one_pass(options: dict[str, Any]) -> None:
    plans = plan_passes(LAYERS, INF, FitSettings(**options), known=LAYERS)
    assert plans == (same(LayerPass((DIAGONAL, PROJECTIONS))),)


def test_an_update_has_a_second_pass_for_layers_that_have_no_bases() -> None:
    first, second = plan_passes(LAYERS, INF, FitSettings(), known=("first",))
    assert first == PassPlan({"first": LayerPass((DIAGONAL, PROJECTIONS)), "last": LayerPass((MOMENTS,))})
    assert second == PassPlan({"last": LayerPass((DIAGONAL, PROJECTIONS))}, scored=False, checked=True)
    assert not second.of(["first"]).layers  # so that it is left out where no gradient reaches the other


@pytest.mark.parametrize("case", TWO_PASSES)
def test_every_statistic_is_summed_over_all_of_the_data_once(case: str) -> None:
    _, _, first, second = TWO_PASSES[case]
    summed = [one for plan in (first, second) for one in (*plan.layers["last"].every, *plan.layers["last"].selected)]
    once = [plan.layers["last"].once for plan in (first, second)]
    assert once[0] == once[1]
    assert len({*summed, *once[0]}) == len([*summed, *once[0]])
    assert [plan.scored for plan in (first, second)].count(True) == 1
    assert second.share == 1


@pytest.mark.parametrize("case", TWO_PASSES)
def test_one_pass_at_most_tells_examples_apart_by_their_vectors(case: str) -> None:
    _, _, first, second = TWO_PASSES[case]
    assert not (second.rereads and second.selects)  # the first has done it
    assert first.selects or not (second.rereads or second.selects)


def test_a_pass_holds_what_it_sums_and_the_results_of_the_first() -> None:
    request = replace(ALL_STATISTICS, factors=False)
    first, second = held_statistics(layer_passes(request), request)
    assert first == (INPUTS, OUTPUTS, MOMENTS)
    assert second == (INPUTS, DIAGONAL, BLOCK, PROJECTIONS)
    sifted = held_statistics(layer_passes(INF, selects=True), INF)
    assert sifted == [(MOMENTS, DIAGONAL), (DIAGONAL, PROJECTIONS)]


def test_a_plan_cannot_be_changed() -> None:
    (plan,) = plan_passes(LAYERS, StatisticsRequest(diagonal=True), FitSettings())
    with pytest.raises(FrozenInstanceError):
        plan.share = 0.5  # type: ignore[misc]
