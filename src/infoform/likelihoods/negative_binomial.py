"""Negative binomial regression: counts y with mean μ = exp f and variance μ + α μ², more spread than Poisson's.

The Fisher matrix is diag(μ / (1 + α μ)). A count is a Poisson one whose rate is Gamma distributed.
"""

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor

from infoform.likelihoods.base import Likelihood
from infoform.likelihoods.numbers import counts
from infoform.likelihoods.poisson import poisson_quantile

HALVINGS = 80  # of the interval that a rate is searched in


class NegativeBinomial(Likelihood):
    """C counts with mean exp f for each output f and more spread than a Poisson distribution; targets (N, C).

    Args:
        dispersion: α in the variance μ + α μ²: positive; towards 0 the counts become Poisson's.
        axis: axis of the C outputs where there are positions; None for the last of three and the second of more.

    Raises:
        ValueError: if the dispersion is not positive and finite.

    Example:
        ```python
        import torch
        from infoform import NegativeBinomial
        prediction = NegativeBinomial(dispersion=0.5).plain_prediction(torch.zeros(1, 1), noise=None)
        assert prediction.mean.item() == 1 and prediction.variance.item() == 1.5
        ```
    """

    name: ClassVar[str] = "negative-binomial"
    default_prior: ClassVar[str] = "isotropic"

    def __init__(self, dispersion: float = 1.0, *, axis: int | None = None) -> None:
        if not 0 < dispersion < math.inf:
            raise ValueError(f"dispersion must be a positive number, got {dispersion}; use Poisson() for none.")
        self.dispersion, self.axis = float(dispersion), axis

    def settings(self) -> dict[str, Any]:
        given = {"dispersion": self.dispersion}
        return given if self.axis is None else {**given, "axis": self.axis}

    def check_targets(self, targets: Tensor, outputs: Tensor) -> Tensor:
        return counts(targets, outputs, likelihood=self.name)

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        shape = outputs.new_tensor(1 / self.dispersion)  # r
        log_share = -torch.nn.functional.softplus(outputs + math.log(self.dispersion))  # log of r / (r + μ)
        log_other = -torch.nn.functional.softplus(-outputs - math.log(self.dispersion))  # log of μ / (r + μ)
        ways = (targets + shape).lgamma() - shape.lgamma() - (targets + 1).lgamma()
        return (ways + shape * log_share + targets * log_other).sum(1)

    def sample_targets(self, outputs: Tensor, uniforms: Tensor) -> Tensor:
        of_rate, of_count = uniforms.to(outputs.device).chunk(2, dim=1)
        if of_rate.stride(0) == 0:  # the same numbers for all examples
            of_rate = of_rate[:1]
        rate = outputs.double().exp() * self.dispersion * gamma_quantile(1 / self.dispersion, of_rate)
        return poisson_quantile(rate, of_count).to(outputs.dtype)

    def noise_width(self, num_outputs: int) -> int:
        return 2 * num_outputs

    def fisher_root(self, outputs: Tensor) -> Iterator[Tensor]:
        mean = outputs.exp()
        root = (mean / (1 + self.dispersion * mean)).sqrt()
        for index in range(outputs.shape[1]):
            vector = torch.zeros_like(root)
            vector[:, index] = root[:, index]
            yield vector

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        mean = outputs.exp()
        return mean, mean + self.dispersion * mean.square()


def gamma_quantile(shape: float, uniforms: Tensor) -> Tensor:
    """Return x with P(Gamma(shape) ≤ x) = u, by halving on a logarithmic scale."""
    wanted = uniforms.double()
    alpha = torch.full_like(wanted, shape)
    low = torch.full_like(wanted, -700.0)
    high = torch.full_like(wanted, math.log(shape + 12 * math.sqrt(shape) + 60))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        below = torch.special.gammainc(alpha, middle.exp()) < wanted
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return high.exp()
