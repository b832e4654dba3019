"""One prediction for a batch of inputs, whatever the likelihood and the way it was made."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Prediction:
    """Class probabilities or means, and how uncertain they are: what more data could tell, and what it could not.

    Variances are those of the answer itself: of a class's indicator, of a label, or of the target. `epistemic` is the
    part that comes from not knowing the weights, `aleatoric` what remains if they were known; they add up to
    `variance`. Entropies are in nats.
    """

    epistemic: Tensor  # (N, C)
    aleatoric: Tensor  # (N, C)
    entropy: Tensor  # (N,): of the prediction
    mutual_information: Tensor  # (N,): of answer and weights; the epistemic part of the entropy
    plain: Tensor  # (N, C): the trained network's own outputs
    probs: Tensor | None = None  # (N, C)
    mean: Tensor | None = None  # (N, C)
    samples: Tensor | None = None  # (M, N, C): probabilities or means of single networks, where asked for
    max_entropy: float = math.nan  # of any prediction; none for regression

    def __len__(self) -> int:
        return len(self.epistemic)

    @property
    def value(self) -> Tensor:  # (N, C)
        """Return the probabilities or, for regression, the mean."""
        value = self.mean if self.probs is None else self.probs
        assert value is not None
        return value

    @property
    def variance(self) -> Tensor:  # (N, C)
        return self.epistemic + self.aleatoric

    @property
    def std(self) -> Tensor:  # (N, C)
        return self.variance.sqrt()

    @property
    def labels(self) -> Tensor:  # (N,)
        """Return the most probable class."""
        return self._probabilities().argmax(1)

    @property
    def confidence(self) -> Tensor:  # (N,)
        """Return the probability of the most probable class."""
        return self._probabilities().amax(1)

    @property
    def normalised_entropy(self) -> Tensor:  # (N,)
        """Return the entropy as a share of the largest possible one, as the paper reports it."""
        self._probabilities()
        return self.entropy / self.max_entropy

    def quantile(self, q: float) -> Tensor:  # (N, C)
        """Return the value that the target stays below with probability q; of a Gaussian with mean and variance."""
        if not 0 < q < 1:
            raise ValueError(f"a quantile must be between 0 and 1, got {q}.")
        if self.mean is None:
            raise ValueError("quantiles are of regression predictions; a classifier has .probs.")
        return self.mean + math.sqrt(2) * torch.erfinv(self.mean.new_tensor(2 * q - 1)) * self.std

    def interval(self, coverage: float = 0.95) -> tuple[Tensor, Tensor]:  # (N, C), (N, C)
        """Return the central interval that should hold the target with probability `coverage`."""
        return self.quantile((1 - coverage) / 2), self.quantile((1 + coverage) / 2)

    def columns(self) -> dict[str, list[Any]]:
        """Return one list an output quantity, as a data frame takes them: `pandas.DataFrame(prediction.columns())`."""
        per_output = {"prob": self.probs, "mean": self.mean, "epistemic": self.epistemic, "aleatoric": self.aleatoric}
        table: dict[str, list[Any]] = {}
        if self.probs is not None:
            table |= {"label": self.labels.tolist(), "confidence": self.confidence.tolist()}
        for name, values in per_output.items():
            if values is not None:
                table |= {f"{name}_{index}": column.tolist() for index, column in enumerate(values.T)}
        return table | {"entropy": self.entropy.tolist(), "mutual_information": self.mutual_information.tolist()}

    def tensors(self) -> dict[str, Tensor]:
        """Return all that this holds, for a file."""
        held = {one.name: getattr(self, one.name) for one in fields(self)}
        held["max_entropy"] = torch.tensor(self.max_entropy, dtype=torch.float64)
        return {name: value for name, value in held.items() if value is not None}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> "Prediction":
        """Return the prediction that these are of."""
        return cls(**{**tensors, "max_entropy": float(tensors["max_entropy"])})  # type: ignore[arg-type]

    def _probabilities(self) -> Tensor:
        if self.probs is None:
            raise ValueError("this is a regression prediction: it has .mean and .variance, not classes.")
        return self.probs


def join_predictions(parts: Sequence[Prediction]) -> Prediction:
    """Return the predictions of several batches as one."""
    first = parts[0]
    values: dict[str, Any] = {}
    for one in fields(Prediction):
        if isinstance(getattr(first, one.name), Tensor):
            axis = 1 if one.name == "samples" else 0
            values[one.name] = torch.cat([getattr(part, one.name) for part in parts], dim=axis)
    return replace(first, **values)
