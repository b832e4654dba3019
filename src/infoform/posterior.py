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

    def sample(
        self,
        count: int,
        *,
        generator: torch.Generator | None = None,
        out: Mapping[str, Tensor] | None = None,
    ) -> dict[str, Tensor]:
        """Draw deviations from the trained weights, (count, G, A) a layer; into the memory of `out`, if given."""
        old = out or {}
        if generator is not None and generator.device.type != "cpu":
            return {
                name: layer.sample(count, generator=generator, out=old.get(name)) for name, layer in self.layers.items()
            }
        seeds = torch.randint(2**62, (len(self.layers),), generator=generator).tolist()

        def draw(name: str) -> Tensor:
            own = torch.Generator().manual_seed(by_name[name])
            return self.layers[name].sample(count, generator=own, out=old.get(name))

        by_name = dict(zip(self.layers, seeds, strict=True))
        sizes = {name: count * math.prod(layer.noise_shape) for name, layer in self.layers.items()}
        # many layers keep all threads busy, each with one of them; of few, all threads share the large ones
        many = max(sizes.values()) * torch.get_num_threads() <= sum(sizes.values())
        alone = [] if many else [name for name in sizes if sizes[name] >= SMALL]
        together = sorted(sizes.keys() - set(alone), key=lambda name: (-sizes[name], name))
        drawn = {name: draw(name) for name in alone}
        drawn |= zip(together, side_by_side(draw, together), strict=True)
        return {name: drawn[name] for name in self.layers}
