"""KFAC by the Cholesky factors of its two parts, and by their eigenvectors where those will not do."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from checks import check_posterior
from infoform.posteriors import KfacPosterior
from infoform.priors import LayerPrior

G, A = 4, 6


def factor(size: int, *, samples: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return a second moment, of less than full rank where samples are few."""
    x = torch.randn(samples, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (x.T @ x / samples).to(dtype)


def kfac(a: Tensor, g: Tensor, *, tau: float = 0.7, num_data: float = 40.0, damping: str = "factored") -> KfacPosterior:
    return KfacPosterior(LayerPrior(tau), num_data, a, g, damping)


def without_eigenvectors(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(matrix: Tensor, *, name: str) -> tuple[Tensor, Tensor]:
        raise AssertionError("eigenvectors are not needed here")

    monkeypatch.setattr("infoform.posteriors.kfac.posterior.symmetric_eigh", refuse)


@pytest.mark.parametrize("samples", [2, 30])
def test_factored_damping_needs_no_eigenvectors(samples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    without_eigenvectors(monkeypatch)
    posterior = kfac(factor(A, samples=samples), factor(G, samples=samples, seed=1))
    check_posterior(posterior)
    check_posterior(posterior.with_prior(LayerPrior(3.0), 7.0))


def test_both_forms_are_the_same_gaussian() -> None:
    a, g = factor(A, samples=30), factor(G, samples=30, seed=1)
    by_roots = kfac(a, g)
    by_vectors = KfacPosterior(LayerPrior(torch.full((A,), 0.7, dtype=torch.float64)), 40.0, a, g, "factored")
    jacobians = torch.randn(3, 2, G, A, dtype=torch.float64)
    inputs, outputs = torch.randn(3, A, dtype=torch.float64), torch.randn(3, 2, G, dtype=torch.float64)
    assert_close(by_roots.dense(), by_vectors.dense())
    assert_close(by_roots.log_det(), by_vectors.log_det())
    assert_close(by_roots.diagonal(), by_vectors.diagonal())
    assert_close(by_roots.covariance(jacobians), by_vectors.covariance(jacobians))
    assert_close(by_roots.outer_covariance(inputs, outputs), by_vectors.outer_covariance(inputs, outputs))


@pytest.mark.parametrize("below", [-1e-3, -0.9e-5, -1e-7])
def test_rounding_never_takes_away_from_the_prior(below: float) -> None:
    turn = torch.linalg.qr(torch.randn(A, A, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).Q
    values = torch.tensor([100.0, 10, 1, 0, 0, below], dtype=torch.float64)  # the last is what rounding makes of 0
    a, g = turn * values @ turn.T, factor(G, samples=30, seed=1)
    tau = 1e-10  # whose root is 1e-5
    posterior = kfac(a, g, tau=tau, num_data=1.0)
    clamped = turn * values.clamp_min(0) @ turn.T
    eye_a, eye_g = torch.eye(A, dtype=torch.float64), torch.eye(G, dtype=torch.float64)
    expected = torch.kron(g + tau**0.5 * eye_g, clamped + tau**0.5 * eye_a)
    variance = torch.linalg.inv(expected).diag().reshape(G, A)
    found = posterior.solve(torch.eye(G * A, dtype=torch.float64).reshape(-1, G, A)).reshape(G * A, -1).diag()
    assert_close(found.reshape(G, A), variance, rtol=0.02, atol=0)


@pytest.mark.parametrize("tau", [1.0, 1e-3, 1e-6, 1e-12, 1e-20])
def test_a_rank_deficient_factor_in_single_precision(tau: float) -> None:
    a, g = factor(300, samples=20), factor(G, samples=30, seed=1)
    posterior = kfac(a.float(), g.float(), tau=tau, num_data=1e6)
    assert posterior.sample(2, generator=torch.Generator().manual_seed(0)).isfinite().all()

    def log_det(values: Tensor) -> float:  # of the eigenvalues of A
        of_gradients = torch.linalg.eigvalsh(g) * 1e3 + tau**0.5
        return float(G * (values.clamp_min(0) * 1e3 + tau**0.5).log().sum() + 300 * of_gradients.log().sum())

    exact, rounded = (log_det(torch.linalg.eigvalsh(one)) for one in (a, a.float().double()))
    error, allowed = abs(float(posterior.log_det()) - exact), abs(rounded - exact)
    assert error <= allowed + 1e-4 * abs(exact)  # no more than the rounding of the factor itself does
