"""Typicality: how far the inputs of all layers are from those of known examples, each layer in its own units.

Raw distances differ by orders of magnitude between layers, and their sum is that of one layer: what is summed is the
log distance, standardised on known examples.
"""

from typing import ClassVar

from torch import Tensor

from infoform.novelty.parts.base import Part, Sight


class Typicality(Part):
    """Mean over layers of the standardised log distance; sees far and low-level shifts."""

    name: ClassVar[str] = "typicality"

    def score(self, sight: Sight) -> Tensor | None:
        return sight.distances.mean(1)
