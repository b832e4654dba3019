"""The posterior over all layers: one `LayerPosterior` each, independent of each other."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from infoform.posteriors import LayerPosterior
from infoform.randomness import normal


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
        sizes = {name: count * math.prod(layer.noise_shape) for name, layer in self.layers.items()}
        dtypes = {layer.dtype for layer in self.layers.values()}
        if len(dtypes) != 1:
            return {name: layer.sample(count, generator=generator) for name, layer in self.layers.items()}
        # in one draw: small layers alone would not keep all threads busy
        noise = normal((sum(sizes.values()),), generator=generator, dtype=dtypes.pop()).split(list(sizes.values()))
        return {
            name: layer.transform(part.view(count, *layer.noise_shape).to(layer.device))
            for (name, layer), part in zip(self.layers.items(), noise, strict=True)
        }
