"""Heteroscedastic regression: y ~ N(μ, exp s), the network giving the means μ and the log-variances s.

The Fisher matrix is diagonal: exp(−s) of a mean, ½ of a log-variance.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from infoform.likelihoods.base import Likelihood, check_matrix
from infoform.likelihoods.gaussian_outputs import GaussianOutputs
from infoform.likelihoods.numbers import finite_numbers
from infoform.prediction import Prediction


class HeteroscedasticRegression(Likelihood):
    """K numbers with a noise that depends on the input: 2 K outputs, K means and then K log-variances.

    Targets are (N, K) numbers. A prediction's `aleatoric` is the noise that the network tells, averaged over weights.

    Args:
        axis: axis of the 2 K outputs where there are positions; None for the last of three and the second of more.

    Example:
        ```python
        import torch
        from infoform import HeteroscedasticRegression
        prediction = HeteroscedasticRegression().plain_prediction(torch.tensor([[3.0, 0.0]]), noise=None)
        assert prediction.mean.item() == 3 and prediction.std.item() == 1
        ```
    """

    name: ClassVar[str] = "heteroscedastic"
    default_prior: ClassVar[str] = "isotropic"

    def __init__(self, *, axis: int | None = None) -> None:
        self.axis = axis

    def settings(self) -> dict[str, Any]:
        return {} if self.axis is None else {"axis": self.axis}

    def check_outputs(self, outputs: Tensor) -> Tensor:
        outputs = check_matrix(outputs, self.name)
        if outputs.shape[1] % 2:
            raise ValueError(
                "heteroscedastic regression needs 2 K outputs, K means and then K log-variances, "
                f"got {outputs.shape[1]}; add the missing ones, or use likelihood='regression' for one noise."
            )
        return outputs

    def check_targets(self, targets: Tensor, outputs: Tensor) -> Tensor:
        return finite_numbers(targets, outputs, numbers=outputs.shape[1] // 2, likelihood=self.name)

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        mean, log_variance = outputs.chunk(2, dim=1)
        squares = (targets - mean).square() * (-log_variance).exp()
        return -0.5 * (squares + log_variance + math.log(2 * math.pi)).sum(1)

    def sample_targets(self, outputs: Tensor, uniforms: Tensor) -> Tensor:
        mean, log_variance = outputs.chunk(2, dim=1)
        normals: Tensor = torch.special.ndtri(uniforms.clamp(1e-16, 1 - 1e-16))
        return mean + (log_variance / 2).exp() * normals.to(outputs.dtype)

    def noise_width(self, num_outputs: int) -> int:
        return num_outputs // 2

    def target_width(self, num_outputs: int) -> int:
        return num_outputs // 2

    def fisher_root(self, outputs: Tensor) -> Iterator[Tensor]:
        mean, log_variance = outputs.chunk(2, dim=1)
        root = torch.cat([(-log_variance / 2).exp(), torch.full_like(mean, math.sqrt(0.5))], dim=1)
        for index in range(outputs.shape[1]):
            vector = torch.zeros_like(root)
            vector[:, index] = root[:, index]
            yield vector

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_variance = outputs.chunk(2, dim=1)
        return mean, log_variance.exp()

    def from_gaussian(self, outputs: GaussianOutputs, *, noise: float | None, link: str) -> Prediction:
        drawn = super().from_gaussian(outputs, noise=noise, link=link)
        (mean, log_variance), (epistemic, doubt) = outputs.mean.chunk(2, dim=1), outputs.variance.chunk(2, dim=1)
        # moments in closed form: exp s is log-normal
        return replace(drawn, mean=mean, epistemic=epistemic.clamp_min(0), aleatoric=(log_variance + doubt / 2).exp())
