"""Multi-label classification: C yes/no answers, p = sigmoid(f), independent given f.

The Fisher matrix is diag(p (1 − p)).
"""

from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from infoform.likelihoods import categorical
from infoform.likelihoods.base import DataSummary, Likelihood, check_batch, check_matrix, known_log_likelihood
from infoform.prediction import Prediction


class MultiLabel(Likelihood):
    """Bernoulli for each of C logits; targets are (N, C) numbers between 0 and 1."""

    name: ClassVar[str] = "multilabel"

    def check_outputs(self, outputs: Tensor) -> Tensor:
        return check_matrix(outputs, self.name)

    def check_targets(self, targets: Tensor, outputs: Tensor) -> Tensor:
        check_batch(targets, outputs)
        if targets.dim() == 1 and outputs.shape[1] == 1:
            targets = targets.unsqueeze(1)
        if targets.shape != outputs.shape:
            raise ValueError(
                f"multilabel needs targets of the outputs' shape {tuple(outputs.shape)}, "
                f"got {tuple(targets.shape)}; use likelihood='classification' for one class index an example."
            )
        targets = targets.to(outputs.dtype)
        low, high = (float(bound) for bound in targets.aminmax())
        if not (low >= 0 and high <= 1):
            raise ValueError(
                f"multilabel targets must be between 0 and 1, got {low if not low >= 0 else high}; check the labels."
            )
        return targets

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return -functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none").sum(1)

    def score(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return targets - outputs.sigmoid()

    def fisher_root(self, outputs: Tensor) -> Iterator[Tensor]:
        root = (outputs.sigmoid() * (-outputs).sigmoid()).sqrt()
        for label in range(outputs.shape[1]):
            vector = root.new_zeros(root.shape)
            vector[:, label] = root[:, label]
            yield vector

    def sample_targets(self, outputs: Tensor, uniforms: Tensor) -> Tensor:
        return (uniforms < outputs.double().sigmoid()).to(outputs.dtype)

    def noise_width(self, num_outputs: int) -> int:
        return num_outputs

    def settings(self) -> dict[str, Any]:
        return {}

    def from_samples(self, samples: Tensor, plain: Tensor, *, noise: float | None) -> Prediction:
        return categorical.summarise(_answers(samples.sigmoid()), plain, yes_no=True)

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
        variance = covariance.diagonal(dim1=1, dim2=2)
        if link == "bridge":  # a yes/no question is a softmax over the logits -f/2 and f/2
            halves = torch.stack([-mean / 2, mean / 2], dim=-1)
            signs = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=mean.dtype, device=mean.device)
            return categorical.bridge(halves, variance[..., None, None] / 4 * signs, mean, yes_no=True)
        probs = None
        if link == "probit":
            probs = _answers((mean * categorical.probit_scale(variance)).sigmoid())
        drawn = categorical.draw_gaussian(mean, covariance, samples, generator).sigmoid()
        return categorical.summarise(_answers(drawn), mean, yes_no=True, probs=probs)

    def fitted_noise(self, summary: DataSummary) -> float | None:
        return None

    def log_likelihood(self, summary: DataSummary, noise: float | None) -> float:
        return known_log_likelihood(summary)

    def information_scale(self, noise: float | None, kind: str) -> float:
        return 1.0


def _answers(yes: Tensor) -> Tensor:  # (..., L) -> (..., L, 2)
    return torch.stack([1 - yes, yes], dim=-1)
