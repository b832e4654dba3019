"""Balanced noise: exact moments, normal in distribution, and a softmax without a part of the first order."""

import pytest
import torch

from infoform.likelihoods import Classification, GaussianOutputs
from infoform.likelihoods.balanced_noise import balanced_normal


@pytest.mark.parametrize(("count", "width"), [(100, 10), (101, 10), (40, 10), (41, 3)])
def test_mean_and_covariance_are_exact(count: int, width: int) -> None:
    noise = balanced_normal(count, width, seed=3).double()
    torch.testing.assert_close(noise.mean(0), torch.zeros(width).double(), atol=1e-6, rtol=0)
    torch.testing.assert_close(noise.T @ noise / count, torch.eye(width).double(), atol=1e-6, rtol=0)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8])
def test_few_draws_of_many_numbers_are_finite_and_repeat(count: int) -> None:
    noise = balanced_normal(count, 1000, seed=0)
    assert noise.shape == (count, 1000)
    assert bool(noise.isfinite().all())
    assert torch.equal(noise, balanced_normal(count, 1000, seed=0))
    assert not torch.equal(noise, balanced_normal(count, 1000, seed=1))


def test_numbers_are_normal() -> None:
    noise = balanced_normal(2000, 5, seed=0).double().flatten().sort().values
    expected = torch.special.ndtri((torch.arange(len(noise)) + 0.5) / len(noise))
    assert float((noise - expected)[100:-100].abs().max()) < 0.1


def test_the_mean_softmax_has_no_error_of_the_first_order() -> None:
    torch.manual_seed(0)
    mean = torch.randn(50, 4, dtype=torch.float64)
    root = torch.randn(50, 4, 4, dtype=torch.float64)
    errors = []
    for scale in (1e-2, 1e-3):
        outputs = GaussianOutputs(mean, scale**2 * root @ root.mT, samples=100)
        probs = Classification().from_gaussian(outputs, noise=None, link="mc").probs
        assert probs is not None
        errors.append(float((probs - mean.softmax(1)).abs().max()))
    assert errors[1] < errors[0] / 50  # a tenth of the width, a hundredth of the change
