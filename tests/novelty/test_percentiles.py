"""p-values of known scores are uniform, and fall off beyond the largest."""

import math

import pytest
import torch
from scipy.stats import kstest  # type: ignore[import-untyped]
from torch.testing import assert_close

from infoform.novelty.percentiles import LEVELS, Percentiles


@pytest.mark.parametrize("count", [LEVELS, 200, 20_000])
def test_fresh_scores_have_uniform_p_values(count: int) -> None:
    generator = torch.Generator().manual_seed(count)
    known = torch.randn(count, 2, generator=generator, dtype=torch.float64).exp()
    fresh = torch.randn(4000, 2, generator=generator, dtype=torch.float64).exp()
    p_values = Percentiles.of(known).log_p_values(fresh).exp()
    for column in p_values.T:
        # the levels of n known scores are themselves uncertain by about 1 / sqrt(n)
        assert kstest(column.numpy(), "uniform").statistic < 1.7 / math.sqrt(count) + 0.02


def test_known_scores_have_their_own_levels() -> None:
    known = torch.tensor([[3.0], [1.0], [2.0]])
    p_values = Percentiles.of(known).log_p_values(known).exp()
    assert_close(p_values, torch.tensor([[0.25], [0.75], [0.5]], dtype=torch.float64), rtol=1e-6, atol=1e-6)


def test_stranger_scores_have_smaller_p_values_and_never_stop_falling() -> None:
    known = torch.randn(1000, 1, generator=torch.Generator().manual_seed(0))
    x = torch.linspace(-20, 20, 4001, dtype=torch.float64)[:, None]
    logs = Percentiles.of(known).log_p_values(x)[:, 0]
    assert bool((logs.diff() <= 1e-12).all())
    assert bool((logs[x[:, 0] > 4].diff() < 0).all())
    assert float(logs.diff().abs().max()) < 0.1  # no jumps where the tail begins
    assert float(logs[0]) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("known", [torch.zeros(50, 1), torch.ones(1, 1), torch.tensor([[0.0], [1.0]])])
def test_few_and_equal_scores_have_p_values(known: torch.Tensor) -> None:
    logs = Percentiles.of(known).log_p_values(
        torch.tensor([[-1.0], [0.0], [0.5], [1.0], [9.0], [math.inf], [math.nan]])
    )
    assert not bool(logs.isnan().any())
    assert bool((logs <= 0).all())
    assert logs[-2:].flatten().tolist() == [-math.inf] * 2
    assert float(logs[4]) < -3


def test_two_sets_of_scores_become_one() -> None:
    generator = torch.Generator().manual_seed(1)
    first, second = torch.randn(2000, 1, generator=generator), 2 + torch.randn(1000, 1, generator=generator)
    joined = Percentiles.of(first).joined(Percentiles.of(second))
    x = torch.linspace(-1, 3, 9)[:, None]
    expected = Percentiles.of(torch.cat([first, second])).log_p_values(x).exp()
    assert int(joined.count) == 3000
    assert_close(joined.log_p_values(x).exp(), expected, rtol=0, atol=0.01)
