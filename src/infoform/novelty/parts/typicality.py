"""Typicality: how far the inputs of all layers are from those of known examples, each layer in its own units.

Raw distances differ by orders of magnitude between layers, and their sum is that of one layer: what is summed is the
log distance z, standardised on known examples, as

    Σ_layers log(1 + exp z)²

so that few layers that find an input strange count for more than many that find it a little closer than usual.
"""

from typing import ClassVar

from torch import Tensor

from infoform.common.exporting import softplus
from infoform.novelty.parts.base import Part, Sight


class Typicality(Part):
    """Mean over layers of the standardised log distances' squared softplus; sees far and low-level shifts."""

    name: ClassVar[str] = "typicality"
    weight: ClassVar[float] = 2.0  # of many layers; chosen as docs/novelty-compared.md says

    def score(self, sight: Sight) -> Tensor | None:
        return softplus(sight.distances).square().mean(1)
