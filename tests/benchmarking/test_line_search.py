"""The search for τ on a line, on functions with a known minimum."""

import math

import pytest
from benchmarks.line_search import find_least_nll, find_minimum


@pytest.mark.parametrize("best", [-4.0, -0.75, 2.0, 3.5, 4.25, 7.0])
def test_the_search_on_a_line_finds_the_least_of_quarter_decades(best: float) -> None:
    tau, tried = find_minimum(lambda tau: (math.log10(tau) - best) ** 2)
    assert tau == pytest.approx(10**best)
    assert len(tried) <= 8 + abs(best - 2)
    assert tried == sorted(tried)


def test_a_score_that_is_not_finite_is_never_the_best() -> None:
    tau, tried = find_minimum(lambda tau: math.inf if tau < 1e4 else tau)
    assert tau == 1e4
    assert all(math.isfinite(score) for _, score in tried)


def test_a_plateau_above_the_minimum_is_crossed() -> None:
    def score(tau: float) -> float:  # flat and falling a little where the prior has closed over the network
        return 1 - 0.2 * math.exp(-((math.log10(tau) + 1) ** 2)) - 1e-5 * math.log10(tau)

    tau, tried = find_least_nll(score)
    assert tau == pytest.approx(0.1)
    assert max(tau for tau, _ in tried) == 1e3
