"""Multiples of covariances draw what these draw, a root times as far from the mean."""

import pytest
import torch
from torch.testing import assert_close

from infoform.likelihoods import DenseCovariance, GaussianOutputs
from infoform.predicting.raw_outputs import RawOutputs


def covariances() -> torch.Tensor:
    half = torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return half @ half.mT


@pytest.mark.parametrize("factor", [1e-6, 1.0, 40.0])
def test_a_multiple_draws_what_its_matrices_draw(factor: float) -> None:
    matrices, mean = covariances(), torch.randn(5, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    multiple = DenseCovariance(matrices).times(factor)
    assert_close(multiple.dense(), factor * matrices, rtol=1e-12, atol=0)
    found = GaussianOutputs(mean, multiple, samples=20, seed=3).draw()
    expected = GaussianOutputs(mean, factor * matrices, samples=20, seed=3).draw()
    assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_outputs_combined_of_one_are_its_multiple() -> None:
    raw = RawOutputs(torch.zeros(5, 3, dtype=torch.float64), covariances())
    weights = torch.tensor([0.3], dtype=torch.float64)
    twice = RawOutputs.combined(weights, [RawOutputs.combined(weights, [raw])])
    assert raw.covariance is not None
    assert twice.covariance is not None
    assert_close(twice.covariance, 0.09 * raw.covariance, rtol=1e-12, atol=0)
    assert_close(twice.covariances.dense(), twice.covariance, rtol=0, atol=0)
    other = twice.with_spread(twice.spread + 1)
    assert other.covariance is not None
    assert_close(other.covariances.dense(), other.covariance, rtol=0, atol=0)
