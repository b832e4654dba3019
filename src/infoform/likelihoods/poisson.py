"""Poisson regression: counts y with the rate λ = exp f.

The Fisher matrix is diag(λ). Under Gaussian outputs λ is log-normal: E λ = exp(m + v/2), Var λ = (exp v − 1) (E λ)².
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from infoform.likelihoods.base import Likelihood
from infoform.likelihoods.gaussian_outputs import GaussianOutputs
from infoform.likelihoods.numbers import counts
from infoform.prediction import Prediction

HALVINGS = 64  # at most, of the numbers among which a count is searched


class Poisson(Likelihood):
    """C counts: a Poisson distribution of rate exp f for each output f; targets are (N, C) whole numbers.

    Args:
        axis: axis of the C outputs where there are positions; None for the last of three and the second of more.

    Example:
        ```python
        import torch
        from infoform import Poisson
        prediction = Poisson().plain_prediction(torch.zeros(1, 1), noise=None)
        assert prediction.mean.item() == 1 and prediction.variance.item() == 1
        ```
    """

    name: ClassVar[str] = "poisson"
    default_prior: ClassVar[str] = "isotropic"

    def __init__(self, *, axis: int | None = None) -> None:
        self.axis = axis

    def settings(self) -> dict[str, Any]:
        return {} if self.axis is None else {"axis": self.axis}

    def check_targets(self, targets: Tensor, outputs: Tensor) -> Tensor:
        return counts(targets, outputs, likelihood=self.name)

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (targets * outputs - outputs.exp() - (targets + 1).lgamma()).sum(1)

    def sample_targets(self, outputs: Tensor, uniforms: Tensor) -> Tensor:
        return poisson_quantile(outputs.double().exp(), uniforms.to(outputs.device)).to(outputs.dtype)

    def fisher_root(self, outputs: Tensor) -> Iterator[Tensor]:
        root = (outputs / 2).exp()
        for index in range(outputs.shape[1]):
            vector = torch.zeros_like(root)
            vector[:, index] = root[:, index]
            yield vector

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        rate = outputs.exp()
        return rate, rate

    def from_gaussian(self, outputs: GaussianOutputs, *, noise: float | None, link: str) -> Prediction:
        drawn = super().from_gaussian(outputs, noise=noise, link=link)
        variance = outputs.variance.clamp_min(0)
        rate = (outputs.mean + variance / 2).exp()
        return replace(drawn, mean=rate, epistemic=variance.expm1() * rate.square(), aleatoric=rate)


def poisson_quantile(rate: Tensor, uniforms: Tensor) -> Tensor:  # both of one shape, in float64
    """Return the smallest counts k with P(y ≤ k) ≥ u, by halving; P(y ≤ k) = Γ(k + 1, λ) / Γ(k + 1)."""
    low = torch.full_like(rate, -1)  # below the count
    high = (rate + 12 * rate.sqrt() + 60).ceil()  # not below it, for any number that float64 has below 1
    for _ in range(HALVINGS):
        if bool((high - low <= 1).all()):
            break
        middle = ((low + high) / 2).floor()
        reaches = torch.special.gammaincc(middle.clamp_min(0) + 1, rate) >= uniforms
        inside = high - low > 1
        low, high = torch.where(inside & ~reaches, middle, low), torch.where(inside & reaches, middle, high)
    return high
