"""A likelihood from outside the package: counts, with a network that gives their log rate."""

from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from infoform import Likelihood, Prediction, Regression


class Counts(Likelihood):
    """A Poisson distribution of rate exp(f)."""

    name: ClassVar[str] = "toy-counts"

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        rates = torch.distributions.Poisson(outputs.exp(), validate_args=False)
        found: Tensor = rates.log_prob(targets.to(outputs)).sum(1)
        return found

    def sample_targets(self, outputs: Tensor, uniforms: Tensor) -> Tensor:
        counts = torch.arange(100.0).to(outputs).reshape(-1, 1, 1)
        below = torch.distributions.Poisson(outputs.exp(), validate_args=False).log_prob(counts).exp().cumsum(0)
        drawn: Tensor = (below < uniforms).sum(0).to(outputs)
        return drawn

    def from_samples(self, samples: Tensor, plain: Tensor, *, noise: float | None) -> Prediction:
        return replace(Regression().from_samples(samples.exp(), plain.exp(), noise=1.0), plain=plain)
