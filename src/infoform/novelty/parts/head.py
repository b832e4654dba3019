"""The head: how far an example is from the nearest class, seen from the last layer."""

from typing import ClassVar

from torch import Tensor

from infoform.novelty.parts.base import Part, Sight


class Head(Part):
    """Log distance of the last layer's inputs, scaled to length 1, to the nearest class; sees near shifts."""

    name: ClassVar[str] = "head"

    def score(self, sight: Sight) -> Tensor | None:
        return sight.head
