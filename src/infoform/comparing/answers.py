"""What a comparison keeps of a prediction: what it is scored by, and what tells unknown inputs from known ones."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from infoform.prediction import Prediction
from infoform.tuning.losses import Answers


@dataclass(frozen=True, eq=False)
class Answered:
    """The answers of one method to the examples of one data set."""

    value: Tensor  # (N, C): probabilities, or means
    variance: Tensor | None  # (N, C): of numbers
    signs: Mapping[str, Tensor]  # (N,) by name: entropy, mutual_information, novelty

    @classmethod
    def of(cls, prediction: Prediction, *, has_spread: bool = True) -> "Answered":
        """Return what is kept of a prediction; that of one network has no spread and no mutual information."""
        signs = {"entropy": prediction.entropy}
        if has_spread:
            signs["mutual_information"] = prediction.mutual_information
        if prediction.input_novelty is not None:
            signs["novelty"] = prediction.novelty
        variance = prediction.variance.double().cpu() if prediction.probs is None else None
        kept = {name: one.detach().double().cpu() for name, one in signs.items()}
        return cls(prediction.value.detach().double().cpu(), variance, kept)

    def __len__(self) -> int:
        return len(self.value)

    @property
    def answers(self) -> Answers:
        """Return what is scored."""
        return Answers(self.value, self.variance)

    @staticmethod
    def joined(parts: "list[Answered]") -> "Answered":
        """Return the answers to several batches as one."""
        first = parts[0]
        signs = {name: torch.cat([one.signs[name] for one in parts]) for name in first.signs}
        variances = [one.variance for one in parts if one.variance is not None]
        return Answered(torch.cat([one.value for one in parts]), torch.cat(variances) if variances else None, signs)

    def tensors(self) -> dict[str, Tensor]:
        """Return all of it for a file."""
        found = {"value": self.value, **{f"signs/{name}": one for name, one in self.signs.items()}}
        return found if self.variance is None else {**found, "variance": self.variance}

    @classmethod
    def read(cls, tensors: Mapping[str, Tensor]) -> "Answered":
        """Undo `tensors`."""
        signs = {name.removeprefix("signs/"): one for name, one in tensors.items() if name.startswith("signs/")}
        return cls(tensors["value"], tensors.get("variance"), signs)
