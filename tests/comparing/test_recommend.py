"""The recommendation in each of the cases that it tells apart."""

import pytest
import torch

from infoform.comparing.recommend import Scored, recommend
from infoform.records.compare import Apart, ComparedMethod, Cost, Gain, Recommendation

COSTS = {"plain": 1.0, "temperature": 1.0, "last layer": 1.2, "all layers": 30.0}


def compared(name: str, auroc: float | None = None) -> ComparedMethod:
    gain = None if auroc is None else Gain(auroc - 0.8, auroc - 0.82, auroc - 0.78)
    unknown = {} if auroc is None else {"SVHN": {"entropy": Apart(auroc, 0.3, gain)}}
    return ComparedMethod(name, "", {}, {}, {}, unknown, Cost(COSTS[name], None, None, 0), {})


def said(
    losses: dict[str, float], *, error: float = 0.001, aurocs: dict[str, float] | None = None, of_numbers: bool = False
) -> Recommendation:
    """Return the recommendation where every loss has an error of its own of this size."""
    found = {}
    for seed, (name, value) in enumerate(losses.items()):
        noise = torch.randn(1000, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        found[name] = Scored(value, value + error * noise, of_numbers)
    return recommend([compared(name, (aurocs or {}).get(name)) for name in losses], found, 1000)


def test_the_cheapest_of_equals_is_taken_and_its_cost_is_said() -> None:
    found = said({"plain": 0.30, "temperature": 0.27, "last layer": 0.2401, "all layers": 0.24})
    assert found.method == "last layer"
    assert found.reason == "Use last layer: as good as all layers here, 1.2 forwards instead of 30."


def test_temperature_is_taken_where_a_posterior_adds_nothing() -> None:
    found = said({"plain": 0.30, "temperature": 0.24, "last layer": 0.2395, "all layers": 0.26})
    assert found.method == "temperature"
    assert found.reason.startswith("Use temperature: a posterior adds nothing to the NLL on this test set")
    assert "last layer has 0.2395" in found.reason
    alone = said({"plain": 0.30, "temperature": 0.24, "all layers": 0.26})
    assert alone.reason == "Use temperature: it has the lowest NLL on this test set, and costs nothing."


def test_all_layers_are_taken_where_they_are_better_with_the_interval_that_shows_it() -> None:
    found = said({"plain": 0.30, "temperature": 0.27, "last layer": 0.26, "all layers": 0.24})
    assert found.method == "all layers"
    assert "lower than that of temperature by 0.030 (95 % interval 0.02" in found.reason
    assert found.reason.endswith("for 30 forwards a prediction.")


def test_a_sure_gain_of_one_posterior_is_not_hidden_by_a_larger_one_that_may_be_chance() -> None:
    values = {"plain": 0.30, "temperature": 0.27, "last layer": 0.26, "all layers": 0.25}
    shared, alone = torch.randn(2, 1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    errors = {"plain": 0.0, "temperature": 0.0, "last layer": 0.001, "all layers": 0.05}
    found = {name: Scored(value, value + 0.02 * shared + errors[name] * alone) for name, value in values.items()}
    recommendation = recommend([compared(name) for name in values], found, 1000)
    assert recommendation.method == "last layer"
    assert recommendation.reason == "Use last layer: as good as all layers here, 1.2 forwards instead of 30."


def test_too_few_examples_are_said_with_how_many_would_do() -> None:
    found = said({"plain": 0.30, "temperature": 0.28}, error=0.05)
    assert found.method == "plain"
    assert found.reason.startswith("You have too few test examples to tell: temperature has a lower NLL")
    assert "with 1,000 examples that may be chance" in found.reason
    half = 1.96 * 0.05 * 2**0.5
    needed = int(found.reason.split("about ")[1].split(" ")[0].replace(",", ""))
    assert needed == pytest.approx(1000 * (half / 0.02) ** 2 * 1.1, rel=0.2)


def test_the_plain_network_is_kept_where_nothing_is_better() -> None:
    found = said({"plain": 0.30, "temperature": 0.2999, "all layers": 0.32})
    assert found.method == "plain"
    assert found.reason.startswith(
        "Keep the plain network: on these 1,000 examples the best of the others, temperature,"
    )
    assert "lowers the NLL by no more than 0.0001 (95 % interval " in found.reason
    alone = said({"plain": 0.30, "temperature": 0.31, "all layers": 0.32})
    assert alone.reason == "Keep the plain network: it has the lowest NLL on these 1,000 examples."


@pytest.mark.parametrize("unit", [-5.0, 0.0, 5.0])
def test_the_recommendation_for_numbers_does_not_depend_on_the_unit_of_the_targets(unit: float) -> None:
    small = said({"plain": unit, "temperature": unit - 0.008, "all layers": unit - 0.009}, of_numbers=True)
    assert small.method == "plain"
    large = said({"plain": unit, "temperature": unit - 0.03, "all layers": unit - 0.031}, of_numbers=True)
    assert large.method == "temperature"
    assert large.reason.startswith("Use temperature, for numbers one noise: a posterior adds nothing")


def test_what_notices_unknown_data_best_is_said_unless_it_is_the_plain_network() -> None:
    losses = {"plain": 0.30, "temperature": 0.24, "all layers": 0.2399}
    found = said(losses, aurocs={"plain": 0.80, "temperature": 0.81, "all layers": 0.90})
    assert found.reason.endswith("To notice SVHN, use entropy of all layers: AUROC 0.900, plain entropy 0.800.")
    none = said(losses, aurocs={"plain": 0.80, "temperature": 0.805, "all layers": 0.79})
    assert none.reason.endswith("Nothing notices SVHN better than the plain network's entropy (AUROC 0.800).")
