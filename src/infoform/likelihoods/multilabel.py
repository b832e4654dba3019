"""Multi-label classification: C yes/no answers, p = sigmoid(f), independent given f.

The Fisher matrix is diag(p (1 − p)).
"""

from collections.abc import Iterator
from typing import Any, ClassVar

from torch import Tensor
from torch.nn import functional

from infoform.likelihoods.base import DataSummary, Likelihood, check_batch, check_matrix


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

    def fitted_noise(self, summary: DataSummary) -> float | None:
        return None

    def information_scale(self, noise: float | None, kind: str) -> float:
        return 1.0
