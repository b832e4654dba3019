"""The answer: how strange the trained network's own outputs are."""

from typing import ClassVar

from torch import Tensor

from infoform.novelty.parts.base import Part, Sight


class Answer(Part):
    """The energy of a classifier, −log Σ exp f, or the mean entropy of yes/no answers; no part of a regression."""

    name: ClassVar[str] = "answer"
    trusted: ClassVar[bool] = True

    def score(self, sight: Sight) -> Tensor | None:
        return sight.likelihood.example_strangeness(sight.outputs) if sight.strangeness is None else sight.strangeness
