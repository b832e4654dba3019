"""Classification: one of C classes, p = softmax(f).

The Fisher matrix diag(p) − p pᵀ has the root with columns √p_c (e_c − p).
"""

from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from infoform.likelihoods import categorical
from infoform.likelihoods.base import DataSummary, Likelihood, check_batch, check_matrix, known_log_likelihood
from infoform.prediction import Prediction


class Classification(Likelihood):
    """Softmax over C logits; targets are class indices (N,)."""

    name: ClassVar[str] = "classification"

    def check_outputs(self, outputs: Tensor) -> Tensor:
        outputs = check_matrix(outputs, self.name)
        if outputs.shape[1] < 2:
            raise ValueError(
                "classification needs at least 2 logits for each example, got 1; "
                "use likelihood='multilabel' for a single yes/no output."
            )
        return outputs

    def check_targets(self, targets: Tensor, outputs: Tensor) -> Tensor:
        check_batch(targets, outputs)
        if targets.dim() != 1 or targets.is_floating_point() or targets.is_complex() or targets.dtype == torch.bool:
            raise ValueError(
                "classification needs integer class indices of shape (examples,), "
                f"got {targets.dtype} of shape {tuple(targets.shape)}; use targets.argmax(1) for one-hot rows."
            )
        low, high = (int(bound) for bound in targets.aminmax())
        if low < 0 or high >= outputs.shape[1]:
            raise ValueError(
                f"class indices must be between 0 and {outputs.shape[1] - 1} (the model has {outputs.shape[1]} "
                f"logits), got {low if low < 0 else high}; check the labels or the model's last layer."
            )
        return targets.long()

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return -functional.cross_entropy(outputs, targets, reduction="none")

    def score(self, outputs: Tensor, targets: Tensor) -> Tensor:
        score = -outputs.softmax(1)
        rows = torch.arange(len(targets), device=targets.device)
        score[rows, targets] += 1
        return score

    def fisher_root(self, outputs: Tensor) -> Iterator[Tensor]:
        probs = outputs.softmax(1)
        for label in range(outputs.shape[1]):
            vector = -probs
            vector[:, label] += 1
            yield probs[:, label : label + 1].sqrt() * vector

    def sample_targets(self, outputs: Tensor, uniforms: Tensor) -> Tensor:
        cumulative = outputs.double().softmax(1).cumsum(1)
        # scaled by the last entry, so that rounding cannot push a draw past the last class
        return (
            torch.searchsorted(cumulative, uniforms * cumulative[:, -1:], right=True)
            .squeeze(1)
            .clamp_max(outputs.shape[1] - 1)
        )

    def noise_width(self, num_outputs: int) -> int:
        return 1

    def settings(self) -> dict[str, Any]:
        return {}

    def from_samples(self, samples: Tensor, plain: Tensor, *, noise: float | None) -> Prediction:
        return categorical.summarise(samples.softmax(-1).unsqueeze(2), plain, yes_no=False)

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
        if link == "bridge":
            return categorical.bridge(mean.unsqueeze(1), covariance.unsqueeze(1), mean, yes_no=False)
        probs = None
        if link == "probit":
            scale = categorical.probit_scale(covariance.diagonal(dim1=1, dim2=2))
            probs = (mean * scale).softmax(1).unsqueeze(1)
        drawn = categorical.draw_gaussian(mean, covariance, samples, generator).softmax(-1)
        return categorical.summarise(drawn.unsqueeze(2), mean, yes_no=False, probs=probs)

    def fitted_noise(self, summary: DataSummary) -> float | None:
        return None

    def log_likelihood(self, summary: DataSummary, noise: float | None) -> float:
        return known_log_likelihood(summary)

    def information_scale(self, noise: float | None, kind: str) -> float:
        return 1.0
