"""Variances under a prior that is far stiffer along some inputs than along others.

They are right to the digits that the dtype has, and never negative, over the whole range of N, τ and scales.
"""

import itertools

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from curvatures import POSTERIORS, make_curvature, random_gradients
from exact import exact_precision, exact_variances
from infoform import Laplace
from infoform.posteriors import STRUCTURES, DiagPosterior, InfPosterior
from infoform.posteriors.efb import EfbPosterior
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


def _truncated_variances(posterior: EfbPosterior, jacobians: Tensor) -> Tensor:  # (n, G, A) -> (n,)
    """Return J P⁻¹ Jᵀ, along the basis and along its orthogonal complement, each a sum of squares."""
    sides = [
        torch.linalg.qr(one.double(), mode="complete").Q
        for one in (posterior.gradient_vectors, posterior.input_vectors)
    ]
    inner = sides[0].T @ jacobians @ sides[1]
    precisions = torch.full_like(inner[0], float(posterior.prior.precision))
    g, a = posterior.eigenvalues.shape
    precisions[:g, :a] += posterior.num_data * posterior.eigenvalues.double()
    variances: Tensor = (inner.square() / precisions).sum((1, 2))
    return variances


def _rounding(expected: Tensor, jacobians: Tensor, tau: float, eps: float) -> Tensor:  # (n,), (n, G, A) -> (n,)
    """Return the error of J P⁻¹ Jᵀ where J P^(-1/2) is off by ε |J| / √τ."""
    moved = 10 * eps * jacobians.square().sum((1, 2)).sqrt() / tau**0.5
    error: Tensor = (2 * expected.sqrt() + moved) * moved
    return error


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("kind", ["full", "efb"])
def test_variances_where_the_data_tell_all_do_not_cancel(kind: str, dtype: torch.dtype) -> None:
    """Along the only gradient that there was, where precisions off it are next to nothing beside that along it."""
    for num_data, tau, scale in itertools.product((1.0, 1e6), (1e-6, 1.0), (1.0, 1e4)):
        a, g = random_gradients(examples=1, shape=(G, A), positions=1, seed=1)
        curvature = make_curvature(scale * a, g, dtype=dtype)
        posterior = POSTERIORS[kind].from_curvature(curvature, prior=LayerPrior(tau), num_data=num_data)
        inputs, outputs = (scale * a[0]).to(dtype), g[0].to(dtype)  # (1, A), (1, G)
        jacobians = torch.einsum("cg,na->ncga", outputs, inputs)
        length = jacobians.double().square().sum((1, 2, 3))
        expected = 1 / (tau / length + num_data)  # P = N vec(∇) vec(∇)ᵀ + τ I, and J = ∇
        rounding = _rounding(expected, jacobians[0].double(), tau, torch.finfo(dtype).eps)
        for found in (
            posterior.outer_covariance(inputs, outputs.unsqueeze(0)).flatten(),
            posterior.covariance(jacobians).flatten(),
        ):
            assert bool(((found.double() - expected).abs() <= rounding).all())
            assert float(found.min()) > 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("columns", [(G, 3), (1, A), (1, 3)])
def test_variances_of_a_truncated_basis_do_not_cancel(columns: tuple[int, int], dtype: torch.dtype) -> None:
    """Rounding moves J P^(-1/2) by ε |J| / √τ at most; in a difference, variances are off by ε |J|² / τ."""
    eps = torch.finfo(dtype).eps
    for num_data, tau, scale in itertools.product((1.0, 1e6), (1e-6, 1.0), (1.0, 1e4)):
        a, g = random_gradients(examples=9, shape=(G, A), seed=1)
        curvature = make_curvature(scale * a, g, dtype=dtype, basis_columns=columns)
        posterior = EfbPosterior.from_curvature(curvature, prior=LayerPrior(tau), num_data=num_data)
        along = torch.randn(4, columns[1], generator=torch.Generator().manual_seed(5), dtype=torch.float64)
        other = torch.randn(4, A, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
        inputs = (scale * torch.cat([along @ posterior.input_vectors.double().T, other])).to(dtype)
        outputs = torch.cat([posterior.gradient_vectors.T[:1], torch.eye(G, dtype=dtype)])  # (C, G)
        jacobians = torch.einsum("cg,na->ncga", outputs, inputs)
        exact = jacobians.double().flatten(0, 1)
        expected = _truncated_variances(posterior, exact)
        rounding = _rounding(expected, exact, tau, eps)
        for found in (
            posterior.outer_covariance(inputs, outputs.expand(8, 1 + G, G)).diagonal(dim1=1, dim2=2).flatten(),
            posterior.covariance(jacobians).diagonal(dim1=1, dim2=2).flatten(),
        ):
            assert bool(((found.double() - expected).abs() <= rounding).all())
            assert float(found.min()) > 0
        variance = posterior.output_covariance(inputs).variance.double()
        of_outputs = (8, 1 + G)
        error = (variance - expected.view(of_outputs)[:, 1:]).abs()
        assert bool((error <= rounding.view(of_outputs)[:, 1:]).all())


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
