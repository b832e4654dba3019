"""Ordinal regression: one of K grades in an order, P(y ≤ k) = sigmoid(θ_k − f) with thresholds θ; McCullagh 1980.

The Fisher number is Σ_k p_k'² / p_k, with the derivatives p_k' of the grades' probabilities in f.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from infoform.likelihoods import categorical
from infoform.likelihoods.base import Likelihood, check_batch, check_matrix
from infoform.prediction import Prediction


class Ordinal(Likelihood):
    """One of K grades in an order: one output f, larger for higher grades; targets are the grades' indices (N,).

    Args:
        thresholds: θ, K − 1 rising numbers between the grades, as the network was trained with.
        axis: axis of the output where there are positions; None for the last of three and the second of more.

    Raises:
        ValueError: if the thresholds do not rise, or there are none.

    Example:
        ```python
        import torch
        from infoform import Ordinal
        prediction = Ordinal([-1.0, 0.0, 1.0]).plain_prediction(torch.tensor([[2.0]]), noise=None)
        assert prediction.probs.shape == (1, 4) and prediction.labels.tolist() == [3]
        ```
    """

    name: ClassVar[str] = "ordinal"
    own_density: ClassVar[bool] = False
    index_targets: ClassVar[bool] = True

    def __init__(self, thresholds: Sequence[float] = (-1.0, 1.0), *, axis: int | None = None) -> None:
        values = [float(one) for one in thresholds]
        if not values or not all(map(math.isfinite, values)) or not all(a < b for a, b in pairwise(values)):
            raise ValueError(f"thresholds must be rising finite numbers, one less than there are grades, got {values}.")
        self.thresholds, self.axis = tuple(values), axis

    def settings(self) -> dict[str, Any]:
        given = {"thresholds": list(self.thresholds)}
        return given if self.axis is None else {**given, "axis": self.axis}

    def check_outputs(self, outputs: Tensor) -> Tensor:
        outputs = check_matrix(outputs.unsqueeze(1) if outputs.dim() == 1 else outputs, self.name)
        if outputs.shape[1] != 1:
            raise ValueError(
                f"the ordinal likelihood needs one output for each example, got {outputs.shape[1]}; leave the "
                "thresholds out of the network and give them: Ordinal(thresholds)."
            )
        return outputs

    def check_targets(self, targets: Tensor, outputs: Tensor) -> Tensor:
        check_batch(targets, outputs)
        if targets.dim() != 1 or targets.is_floating_point() or targets.is_complex() or targets.dtype == torch.bool:
            raise ValueError(
                "the ordinal likelihood needs whole numbers of shape (examples,), the grades, "
                f"got {targets.dtype} of shape {tuple(targets.shape)}; use targets.long()."
            )
        low, high = (int(bound) for bound in targets.aminmax())
        if low < 0 or high > len(self.thresholds):
            raise ValueError(
                f"grades must be between 0 and {len(self.thresholds)} (there are {len(self.thresholds)} thresholds), "
                f"got {low if low < 0 else high}; give the thresholds of all grades: Ordinal(thresholds)."
            )
        return targets.long()

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self._log_probs(outputs).gather(1, targets.unsqueeze(1)).squeeze(1)

    def sample_targets(self, outputs: Tensor, uniforms: Tensor) -> Tensor:
        below = (outputs.new_tensor(self.thresholds) - outputs).double().sigmoid()  # (N, K - 1)
        return (below <= uniforms.to(below)).sum(1)

    def fisher_root(self, outputs: Tensor) -> Iterator[Tensor]:
        below = (outputs.new_tensor(self.thresholds) - outputs).sigmoid()
        slope = functional.pad(below * (1 - below), (1, 1))  # of P(y ≤ k), 0 at both ends
        probs = self._log_probs(outputs).exp().clamp_min(torch.finfo(outputs.dtype).tiny)
        yield (slope.diff(dim=1).square() / probs).sum(1, keepdim=True).sqrt()

    def read_targets(self, targets: Tensor, dtype: torch.dtype) -> Tensor:
        return targets.long() if bool((targets == targets.round()).all()) else targets.to(dtype)

    def from_samples(self, samples: Tensor, plain: Tensor, *, noise: float | None) -> Prediction:
        probs = self._log_probs(samples.flatten(0, 1)).exp().unflatten(0, samples.shape[:2])
        return categorical.summarise(probs.unsqueeze(2), plain, yes_no=False)

    def target_covariance(self, prediction: Prediction, index: int) -> Tensor:
        return categorical.class_covariance(prediction, index)

    def _log_probs(self, outputs: Tensor) -> Tensor:  # (N, 1) -> (N, K)
        upper = outputs.new_tensor([*self.thresholds, math.inf]) - outputs
        lower = outputs.new_tensor([-math.inf, *self.thresholds]) - outputs
        width = outputs.new_tensor([math.inf, *(b - a for a, b in pairwise(self.thresholds)), math.inf])
        # sigmoid(b) − sigmoid(a) = sigmoid(b) sigmoid(−a) (1 − exp(a − b)), which does not cancel
        found = functional.logsigmoid(upper) + functional.logsigmoid(-lower)
        return found + torch.log1p(-(-width).exp())
