"""Conformance of a structure: everything that a `LayerPosterior` promises, against its own dense precision."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.testing import assert_close

from infoform.likelihoods import OutputCovariance
from infoform.posteriors import LayerPosterior
from infoform.priors import LayerPrior


def check_posterior(
    posterior: LayerPosterior, *, rtol: float = 1e-9, fixed: Tensor | None = None, whitened: bool = False
) -> None:
    """Check all maps of a posterior; `fixed` (G, A) says which weights have no precision at all and are held fixed.

    `whitened` takes the identity as Lᵀ F Fᵀ L = I with P = L Lᵀ in place of F Fᵀ P = I: every direction in units of
    its own standard deviation, for posteriors whose weights differ by many magnitudes.
    """
    fixed = torch.zeros(posterior.shape, dtype=torch.bool) if fixed is None else fixed
    check_linear_maps(posterior, rtol=rtol, fixed=fixed, whitened=whitened)
    check_scalars(posterior, rtol=rtol, fixed=fixed)
    check_batching(posterior, rtol=rtol)
    check_output_covariance(posterior, rtol=rtol)
    check_sampling(posterior, fixed=fixed)
    check_state(posterior)


def factor(posterior: LayerPosterior) -> Tensor:  # (G * A, noise)
    """Return F, from `transform` on the identity; it need not be square."""
    size = math.prod(posterior.noise_shape)
    identity = torch.eye(size, dtype=posterior.dtype).reshape(size, *posterior.noise_shape)
    return posterior.transform(identity).reshape(size, -1).T


def covariance(posterior: LayerPosterior) -> Tensor:  # (G * A, G * A)
    """Return P⁻¹, from `solve` on the identity."""
    size = math.prod(posterior.shape)
    identity = torch.eye(size, dtype=posterior.dtype).reshape(size, *posterior.shape)
    return posterior.solve(identity).reshape(size, size).T


def check_linear_maps(posterior: LayerPosterior, *, rtol: float, fixed: Tensor, whitened: bool) -> None:
    free = ~fixed.flatten()
    precision = posterior.dense()[free][:, free]
    eye = torch.eye(int(free.sum()), dtype=posterior.dtype)
    root, inverse = factor(posterior), covariance(posterior)
    assert not root[~free].any(), "a weight that is held fixed moves"
    assert not inverse[~free].any()
    assert inverse[:, ~free].abs().le(rtol * inverse.abs().max()).all()
    root, inverse = root[free], inverse[free][:, free]
    if whitened:
        lower = torch.linalg.cholesky(precision)
        assert_close(lower.T @ root @ root.T @ lower, eye, rtol=0, atol=rtol)
        assert_close(lower.T @ inverse @ lower, eye, rtol=0, atol=rtol)
    else:
        assert_close(root @ root.T @ precision, eye, rtol=0, atol=rtol)
        assert_close(precision @ inverse, eye, rtol=0, atol=rtol)


def check_scalars(posterior: LayerPosterior, *, rtol: float, fixed: Tensor) -> None:
    dense = posterior.dense()
    free = ~fixed.flatten()
    assert_close(dense, dense.T, rtol=0, atol=rtol * float(dense.abs().max()))
    sign, log_det = torch.linalg.slogdet(dense[free][:, free])
    assert sign == 1
    terms = int(free.sum())  # of the sum of logarithms
    assert_close(posterior.log_det(), log_det.double(), rtol=rtol, atol=rtol * terms)
    assert_close(posterior.diagonal().flatten(), dense.diag(), rtol=rtol, atol=0 if free.all() else rtol)
    x = _normal(3, *posterior.shape, dtype=posterior.dtype)
    expected = torch.einsum("ni,ij,nj->n", x.flatten(1), dense, x.flatten(1))
    assert_close(posterior.quadratic_form(x), expected, rtol=rtol, atol=0)


def check_batching(posterior: LayerPosterior, *, rtol: float) -> None:
    """Any number of leading axes, none included, gives the same."""
    noise = _normal(2, 3, *posterior.noise_shape, dtype=posterior.dtype)
    x = _normal(2, 3, *posterior.shape, dtype=posterior.dtype)
    for apply, given in ((posterior.transform, noise), (posterior.solve, x), (posterior.quadratic_form, x)):
        together = apply(given)
        one_by_one = torch.stack([torch.stack([apply(one) for one in row]) for row in given])
        assert_close(together, one_by_one, rtol=rtol, atol=rtol * float(together.abs().max()))
    assert posterior.transform(noise).shape == x.shape
    assert posterior.solve(x).shape == x.shape
    assert posterior.quadratic_form(x).shape == x.shape[:2]


def check_output_covariance(posterior: LayerPosterior, *, rtol: float) -> None:
    """The covariance of W a, in whatever form, is J P⁻¹ Jᵀ with rows J_g = e_g aᵀ."""
    outputs, inputs = posterior.shape
    a = _normal(3, inputs, dtype=posterior.dtype)
    inverse = covariance(posterior).reshape(outputs, inputs, outputs, inputs)
    expected = torch.einsum("na,gahb,nb->ngh", a, inverse, a)
    check_covariance_form(posterior.output_covariance(a), expected, rtol=rtol)


def check_covariance_form(form: OutputCovariance, expected: Tensor, *, rtol: float) -> None:  # (N, C, C)
    scale = float(expected.abs().max())
    assert_close(form.dense(), expected, rtol=0, atol=rtol * scale)
    assert_close(form.variance, expected.diagonal(dim1=1, dim2=2), rtol=0, atol=rtol * scale)
    assert form.row_sums().dtype == torch.float64
    assert_close(form.row_sums().to(expected), expected.sum(2), rtol=0, atol=expected.shape[1] * rtol * scale)
    root = form.transform(torch.eye(form.noise_width, dtype=expected.dtype))  # (W, N, C)
    # a root of rounding is larger than rounding itself
    assert_close(torch.einsum("wnc,wnd->ncd", root, root), expected, rtol=0, atol=max(1e2 * rtol, 1e-7) * scale)
    noise = torch.linspace(0.5, 2.0, expected.shape[1], dtype=expected.dtype) * scale
    ratio = torch.linalg.slogdet(expected + noise.diag()).logabsdet - noise.log().sum()
    assert_close(form.log_det_ratio(noise), ratio, rtol=0, atol=1e2 * rtol)


def check_sampling(posterior: LayerPosterior, *, fixed: Tensor) -> None:
    def draw(seed: int) -> Tensor:
        return posterior.sample(4, generator=torch.Generator().manual_seed(seed))

    samples = draw(0)
    assert samples.shape == (4, *posterior.shape)
    assert samples.dtype == posterior.dtype
    assert samples.isfinite().all()
    assert torch.equal(samples, draw(0)), "the same seed must give the same samples"
    assert not torch.equal(samples, draw(1))
    assert not samples[:, fixed].any(), "a weight that is held fixed moves"


def check_state(posterior: LayerPosterior) -> None:
    """What is stored is all that is needed: another object from it is the same posterior."""
    tensors, settings = posterior.state_dict(), posterior.settings()
    held = {key: value for key, value in vars(posterior).items() if isinstance(value, Tensor)}
    cached = {key for key in held if key not in tensors}
    assert cached <= {key for key in dir(type(posterior)) if key not in tensors}, "a tensor field is not stored"
    stored = sum(value.numel() * value.element_size() for value in tensors.values())
    assert posterior.nbytes == stored + posterior.prior.nbytes
    assert not any(isinstance(value, Tensor) for value in settings.values())
    again = type(posterior)(prior=posterior.prior, num_data=posterior.num_data, **tensors, **settings)  # type: ignore[call-arg]
    assert again.shape == posterior.shape
    assert torch.equal(again.dense(), posterior.dense())
    assert torch.equal(factor(again), factor(posterior))


def check_with_prior(
    make: Callable[[LayerPrior, float], LayerPosterior], one: tuple[LayerPrior, float], other: tuple[LayerPrior, float]
) -> None:
    """Another prior and data-set size by `with_prior` is the same as building the posterior with them."""
    built = make(*other)
    first = make(*one)
    factor(first)  # so that there is something cached to leave behind
    changed = first.with_prior(*other)
    assert type(changed) is type(built)
    assert torch.equal(changed.dense(), built.dense())
    assert torch.equal(factor(changed), factor(built))
    assert torch.equal(changed.log_det(), built.log_det())
    assert not torch.equal(first.dense(), built.dense())


def _normal(*size: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(0), dtype=dtype)
