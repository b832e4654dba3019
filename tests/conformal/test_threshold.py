"""The finite-sample threshold: its rank, its exact promise for every number of examples, and too few of them."""

import math
from fractions import Fraction
from itertools import permutations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from infoform.conformal.threshold import examples_needed, threshold


@given(st.integers(1, 300), st.integers(1, 99))
def test_the_rank_is_that_of_exact_fractions(count: int, percent: int) -> None:
    rank = math.ceil((count + 1) * Fraction(percent, 100))
    scores = torch.arange(1, count + 1, dtype=torch.float64).flip(0)
    if rank > count:
        with pytest.raises(ValueError, match=f"needs {examples_needed(percent / 100)} or more"):
            threshold(scores, percent / 100)
    else:
        assert float(threshold(scores, percent / 100)) == rank


@pytest.mark.parametrize(("level", "count"), [(0.5, 1), (0.8, 4), (0.9, 9), (0.95, 19), (0.99, 99)])
def test_a_level_needs_as_many_examples_as_it_says(level: float, count: int) -> None:
    assert examples_needed(level) == count
    scores = torch.rand(count)
    assert float(threshold(scores, level)) == float(scores.max())
    with pytest.raises(ValueError, match=f"level of {level:g} needs {count} or more calibration examples, got"):
        threshold(scores[:-1], level)


@pytest.mark.parametrize("level", [0.25, 0.5, 0.6, 0.8])
def test_of_all_orders_of_five_scores_the_share_that_is_promised_stays_below(level: float) -> None:
    orders = list(permutations([0.1, 0.2, 0.3, 0.4, 0.5]))
    held = sum(one[4] <= float(threshold(torch.tensor(one[:4], dtype=torch.float64), level)) for one in orders)
    assert Fraction(held, len(orders)) == Fraction(math.ceil(5 * Fraction(str(level))), 5)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 90, math.nan])
def test_a_level_is_a_share(level: float) -> None:
    with pytest.raises(ValueError, match="share of answers between 0 and 1, got"):
        threshold(torch.rand(10), level)
