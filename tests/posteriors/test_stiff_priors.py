"""Variances under a prior that is far stiffer along some inputs than along others.

They are right to the digits that the dtype has, and never negative, over the whole range of N, τ and scales.
"""

import itertools

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from curvatures import make_curvature, random_gradients
from exact import exact_precision, exact_variances
from infoform import Laplace
from infoform.posteriors import STRUCTURES, DiagPosterior, InfPosterior
from infoform.priors import LayerPrior

G, A = 2, 5
# the largest relative error, by dtype and by how much stiffer the prior is along W than elsewhere
BOUNDS = [
    *((torch.float64, stiffness, 1e-8) for stiffness in (1.0, 1e4, 1e8)),
    (torch.float64, 1e12, 1e-7),
    (torch.float64, 1e16, 1e-3),
    *((torch.float32, stiffness, 2e-3) for stiffness in (1.0, 1e3, 1e6)),
]


def _posterior(
    kind: str, dtype: torch.dtype, *, num_data: float, tau: float, stiffness: float, scale: float
) -> DiagPosterior | InfPosterior:
    a, g = random_gradients(examples=3, shape=(G, A), seed=1)
    a = scale * a
    a[..., 3] = 0  # an input that the data do not use: D is 0 there
    curvature = make_curvature(a, g, dtype=dtype)
    vectors = torch.linalg.qr(torch.randn(A, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)).Q
    values = tau * stiffness * torch.tensor([1.0, 0.3], dtype=dtype)
    prior = LayerPrior(torch.full((A,), tau, dtype=dtype), vectors.to(dtype), values, pull=tau)
    if kind == "diag":
        return DiagPosterior.from_curvature(curvature, prior=prior, num_data=num_data)
    return InfPosterior.from_curvature(curvature, prior=prior, num_data=num_data, rank=3)


def _inputs(posterior: DiagPosterior | InfPosterior, scale: float) -> Tensor:  # (4, A)
    """Return inputs along the stiff directions, off them, and of both kinds, where next to nothing is off them."""
    assert posterior.prior.vectors is not None
    vectors = posterior.prior.vectors.double()
    generator = torch.Generator().manual_seed(4)
    along = torch.randn(1, 2, generator=generator, dtype=torch.float64) @ vectors.T
    other = torch.randn(1, A, generator=generator, dtype=torch.float64)
    off = other - other @ vectors @ vectors.T
    return (scale * torch.cat([along, off, other, along + 1e-6 * other])).to(posterior.dtype)


@pytest.mark.parametrize("kind", ["diag", "inf"])
@pytest.mark.parametrize(("dtype", "stiffness", "bound"), BOUNDS)
def test_variances_are_those_of_exact_arithmetic(kind: str, dtype: torch.dtype, stiffness: float, bound: float) -> None:
    for num_data, tau, scale in itertools.product((1.0, 1e6), (1e-7, 1.0), (1e-3, 1.0, 1e5)):
        posterior = _posterior(kind, dtype, num_data=num_data, tau=tau, stiffness=stiffness, scale=scale)
        inputs = _inputs(posterior, scale)
        first = torch.eye(G, dtype=dtype)[0].expand(4, 1, G)  # of which a product with inputs is exact
        jacobians = torch.einsum("ncg,na->ncga", first, inputs)
        expected = exact_variances(exact_precision(posterior), jacobians.flatten(0, 1).flatten(1))
        for found in (
            posterior.outer_covariance(inputs, first).flatten(),
            posterior.covariance(jacobians).flatten(),
            posterior.output_covariance(inputs).variance[:, 0],
        ):
            assert_close(found.double(), expected, rtol=bound, atol=0)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_no_variance_is_negative_with_few_large_inputs(structure: str, dtype: torch.dtype) -> None:
    for features, scale, tau in itertools.product((1, 3), (1.0, 1e5), (1e-7, 1e4)):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(features, 12), nn.Tanh(), nn.Linear(12, 1)).to(dtype)
        x, y = (scale * torch.randn(50, features)).to(dtype), torch.randn(50, 1).to(dtype)
        laplace = Laplace(model, "regression", structure=structure, prior="activation").fit([(x, y)], progress=False)
        laplace.prior = laplace.prior.with_precision(tau)
        new = (scale * torch.randn(150, features)).to(dtype)
        inputs = torch.cat([new, torch.ones(150, 1, dtype=dtype)], dim=1)
        layer = laplace.posterior().layers["0"]
        outputs = torch.randn(150, 1, 12).to(dtype)
        for found in (
            layer.outer_covariance(inputs, outputs),
            layer.covariance(torch.einsum("ncg,na->ncga", outputs, inputs)),
            layer.output_covariance(inputs).variance,
        ):
            assert bool(found.isfinite().all())
            assert float(found.min()) > 0
        assert float(laplace.predict(new, kind="linear").epistemic.min()) > 0
