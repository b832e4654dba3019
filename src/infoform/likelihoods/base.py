"""What a likelihood must tell: log p(y | f), its gradient in f, a sampler, and a root of its Fisher matrix.

    E_y[∇_f log p ∇_f log pᵀ] = Σ_v u_v u_vᵀ,     u_v: the Fisher vectors, (N, C) each

Three choices of vectors: "exact" (a deterministic root), "mc" (labels drawn from the model itself) and
"empirical" (the labels of the data; a biased estimate, see Kunstner et al. 2019).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from infoform.prediction import Prediction

FISHER_KINDS = ("mc", "exact", "empirical")
LINKS = ("probit", "bridge", "mc")


@dataclass(frozen=True)
class DataSummary:
    """What a fit learns of its data besides the curvature."""

    num_examples: int
    num_outputs: int
    log_likelihood: float | None  # Σ_n log p(y_n | f_n), at σ = 1; None where the data had no targets


class Likelihood(ABC):
    """A probability of targets given the network's outputs f (N, C); immutable."""

    name: ClassVar[str]
    default_prior: ClassVar[str] = "activation"  # for structure "inf": the best by measurement, see docs/predictives.md
    free_noise: bool = False  # whether it has a noise σ that is to be found from data

    @abstractmethod
    def check_outputs(self, outputs: Tensor) -> Tensor:  # -> (N, C)
        """Return the outputs as (N, C), or raise a ValueError that says what was expected."""

    @abstractmethod
    def check_targets(self, targets: Tensor, outputs: Tensor) -> Tensor:
        """Return the targets in the form `log_prob` takes, or raise a ValueError."""

    @abstractmethod
    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:  # -> (N,)
        """Return log p(target | output) of every example."""

    @abstractmethod
    def score(self, outputs: Tensor, targets: Tensor) -> Tensor:  # -> (N, C)
        """Return the gradient of `log_prob` in the outputs."""

    @abstractmethod
    def fisher_root(self, outputs: Tensor) -> Iterator[Tensor]:  # C times (N, C)
        """Yield the C vectors whose outer products sum to the Fisher matrix of the outputs."""

    @abstractmethod
    def sample_targets(self, outputs: Tensor, uniforms: Tensor) -> Tensor:  # uniforms (N, noise_width)
        """Turn uniform random numbers into targets drawn from the model."""

    @abstractmethod
    def noise_width(self, num_outputs: int) -> int:
        """Return how many uniform random numbers one sampled target takes."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return what the constructor needs to make this object again, as JSON can hold it."""

    @abstractmethod
    def from_samples(self, samples: Tensor, plain: Tensor, *, noise: float | None) -> Prediction:
        """Return the prediction of M networks: outputs (M, N, C), and the trained network's own (N, C)."""

    @abstractmethod
    def from_gaussian(
        self,
        mean: Tensor,
        covariance: Tensor,
        *,
        noise: float | None,
        link: str,
        samples: int,
        generator: torch.Generator,
    ) -> Prediction:
        """Return the prediction for Gaussian outputs: mean (N, C), covariance (N, C, C)."""

    @abstractmethod
    def fitted_noise(self, summary: DataSummary) -> float | None:
        """Return the noise σ, given or fitted to the data; None where the likelihood has no such parameter."""

    @abstractmethod
    def log_likelihood(self, summary: DataSummary, noise: float | None) -> float:
        """Return Σ_n log p(y_n | f_n) of the fitted data at σ = `noise`."""

    @abstractmethod
    def information_scale(self, noise: float | None, kind: str) -> float:
        """Return the factor from the information at σ = 1, as the curvature keeps it, to that at σ = `noise`."""

    def num_vectors(self, num_outputs: int, kind: str, samples: int) -> int:
        return {"mc": samples, "exact": num_outputs, "empirical": 1}[kind]

    def fisher_vectors(
        self, outputs: Tensor, kind: str, *, targets: Tensor | None = None, uniforms: Tensor | None = None
    ) -> Iterator[Tensor]:  # uniforms (N, V, noise_width) -> V times (N, C)
        """Yield the Fisher vectors of a batch, one at a time."""
        if kind == "exact":
            yield from self.fisher_root(outputs)
        elif kind == "empirical":
            assert targets is not None
            yield self.score(outputs, targets)
        else:
            assert uniforms is not None
            scale = 1 / math.sqrt(uniforms.shape[1])
            for draw in uniforms.unbind(1):
                yield scale * self.score(outputs, self.sample_targets(outputs, draw))


def known_log_likelihood(summary: DataSummary) -> float:
    """Return the log-likelihood that the fit summed up, or say why there is none."""
    if summary.log_likelihood is None:
        raise ValueError("this needs the targets of the fitted data, and the loader gave none; fit on (x, y) batches.")
    return summary.log_likelihood


def check_batch(targets: Tensor, outputs: Tensor) -> None:
    """Raise unless there is one target for every output."""
    if targets.dim() == 0 or targets.shape[0] != outputs.shape[0]:
        raise ValueError(
            f"a batch needs one target for each of its {outputs.shape[0]} examples, "
            f"got targets of shape {tuple(targets.shape)}; check the loader."
        )


def check_matrix(outputs: Tensor, likelihood: str) -> Tensor:
    """Return (N, C) outputs as they are; raise for any other shape."""
    if outputs.dim() != 2:
        raise ValueError(
            f"the {likelihood} likelihood needs outputs of shape (examples, outputs), got {tuple(outputs.shape)}; "
            "wrap the model so that it returns one row of outputs for each example."
        )
    return outputs
