"""The posterior over all layers: one `LayerPosterior` each, independent of each other."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from infoform.posteriors import LayerPosterior
from infoform.threads import side_by_side

SMALL = 2**18  # numbers of a layer's samples that one thread alone draws best


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
        if generator is not None and generator.device.type != "cpu":
            return {name: layer.sample(count, generator=generator) for name, layer in self.layers.items()}
        seeds = torch.randint(2**62, (len(self.layers),), generator=generator).tolist()

        def draw(name: str) -> Tensor:
            return self.layers[name].sample(count, generator=torch.Generator().manual_seed(by_name[name]))

        by_name = dict(zip(self.layers, seeds, strict=True))
        small = [name for name, layer in self.layers.items() if count * math.prod(layer.noise_shape) < SMALL]
        drawn = {name: draw(name) for name in self.layers if name not in small}
        drawn |= zip(small, side_by_side(draw, small), strict=True)
        return {name: drawn[name] for name in self.layers}
