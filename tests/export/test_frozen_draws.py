import torch
from torch.testing import assert_close

from infoform.export.frozen_draws import FrozenDraws, RootByProducts, square_root
from infoform.likelihoods import DenseCovariance, GaussianOutputs
from infoform.likelihoods.balanced_noise import balanced_normal


def covariances(size: int, condition: float) -> torch.Tensor:
    torch.manual_seed(2)
    vectors: torch.Tensor = torch.linalg.qr(torch.randn(4, size, size, dtype=torch.float64)).Q
    values = torch.logspace(0, -torch.tensor(condition).log10().item(), size, dtype=torch.float64)
    return vectors * values @ vectors.mT


def test_a_root_by_products_is_the_symmetric_root() -> None:
    for condition in (1.0, 1e3, 1e5):
        matrices = 7 * covariances(5, condition)
        root = square_root(matrices)
        assert_close(root @ root, matrices, rtol=0, atol=1e-9)
        assert_close(root, DenseCovariance(matrices)._root, rtol=0, atol=1e-9)


def test_a_covariance_of_zero_has_a_root_of_zero() -> None:
    assert_close(square_root(torch.zeros(2, 3, 3)), torch.zeros(2, 3, 3))


def test_frozen_draws_are_those_of_the_seed_at_every_temperature() -> None:
    mean, matrices = torch.randn(4, 3, dtype=torch.float64), covariances(3, 100.0)
    normals = balanced_normal(50, 3, seed=7).double()
    own = FrozenDraws(mean, RootByProducts(matrices), normals).at_temperature(2.0)
    other = GaussianOutputs(mean, matrices, samples=50, seed=7).at_temperature(2.0)
    assert_close(own.draw(), other.draw(), rtol=1e-9, atol=1e-9)
    assert_close(own.variance, other.variance)
