"""The answer: how unsure the trained network is of it."""

from typing import ClassVar

from torch import Tensor

from infoform.novelty.parts.base import Part, Sight


class Answer(Part):
    """Entropy of the trained network's own answer, where it is one of classes or of yes and no."""

    name: ClassVar[str] = "answer"

    def score(self, sight: Sight) -> Tensor | None:
        return sight.likelihood.answer_entropy(sight.outputs)
