"""The posterior over all layers: one `LayerPosterior` each, independent of each other."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from infoform.posteriors import LayerPosterior


@dataclass(frozen=True)
class Posterior:
    """Layers by name; block-diagonal over them."""

    layers: Mapping[str, LayerPosterior]

    @property
    def nbytes(self) -> int:
        """Return the bytes of all that is stored."""
        return sum(layer.nbytes for layer in self.layers.values())

    def log_det(self) -> Tensor:
        """Return log det P of all layers together."""
        return torch.stack([layer.log_det().double().cpu() for layer in self.layers.values()]).sum()

    def sample(self, count: int, *, generator: torch.Generator | None = None) -> dict[str, Tensor]:
        """Draw deviations from the trained weights, (count, G, A) a layer."""
        return {name: layer.sample(count, generator=generator) for name, layer in self.layers.items()}
