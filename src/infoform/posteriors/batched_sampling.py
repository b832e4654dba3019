"""Small layers of one shape, drawn together: calling an operation takes longer than the few numbers of each.

A network of many blocks has the same small layer many times. Each layer's noise comes from a generator of its own, so
that samples are those of the layers one by one, up to rounding.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from infoform.common.randomness import normal
from infoform.posteriors import LayerPosterior

SMALL = 2**18  # numbers of a layer that gains by being drawn with others
LARGEST = 2**19  # numbers of all that are drawn together: more of them leave threads idle


@dataclass(frozen=True, eq=False)
class SameShapeLayers:
    """Layers whose noise is transformed at once; with one layer it is the layer's own business."""

    layers: Mapping[str, LayerPosterior]

    @property
    def size(self) -> int:
        """Return how many numbers a sample has."""
        return sum(math.prod(layer.noise_shape) for layer in self.layers.values())

    def sample(self, *, seeds: Mapping[str, int], out: Mapping[str, Tensor]) -> dict[str, Tensor]:  # (1, G, A) each
        """Draw one deviation from the trained weights of each layer; into the memory of `out`, where it will do."""
        generators = {name: torch.Generator().manual_seed(seeds[name]) for name in self.layers}
        if len(self.layers) == 1:
            ((name, layer),) = self.layers.items()
            return {name: layer.sample(1, generator=generators[name], out=out.get(name))}
        first = next(iter(self.layers.values()))
        noise = _as_one([out[name] for name in self.layers if name in out], (len(self.layers), *first.shape))
        if noise is None or (noise.dtype, noise.device.type) != (first.dtype, "cpu"):
            noise = torch.empty(len(self.layers), *first.shape, dtype=first.dtype)
        for one, generator in zip(noise, generators.values(), strict=True):
            normal(first.shape, generator=generator, dtype=first.dtype, out=one)
        drawn = noise.to(first.device)
        self._transform(drawn)
        return dict(zip(self.layers, drawn.split(1), strict=True))

    @cached_property
    def _transform(self) -> Callable[[Tensor], None]:
        layers = list(self.layers.values())
        return type(layers[0]).transform_batched(layers)


def grouped(layers: Mapping[str, LayerPosterior]) -> list[SameShapeLayers]:
    """Put layers that are alike together, the largest groups first."""
    kinds: dict[object, list[str]] = {}
    for name, layer in layers.items():
        small = layer.alike is not None and layer.shape[0] * layer.shape[1] <= SMALL
        kinds.setdefault((type(layer), layer.alike) if small else name, []).append(name)
    groups = []
    for names in kinds.values():
        rows, columns = layers[names[0]].shape
        most = max(1, LARGEST // (rows * columns))
        count = -(-len(names) // most)  # groups of nearly equal length
        bounds = [index * len(names) // count for index in range(count + 1)]
        parts = [names[start:stop] for start, stop in pairwise(bounds)]
        groups += [SameShapeLayers({name: layers[name] for name in part}) for part in parts]
    return sorted(groups, key=lambda group: -group.size)


def _as_one(tensors: Sequence[Tensor], shape: tuple[int, ...]) -> Tensor | None:  # (1, G, A) each -> (L, G, A)
    """Return the one tensor that these are the parts of, or None if they are not."""
    count, rows, columns = shape
    if len(tensors) != count or any(one.shape != (1, rows, columns) or not one.is_contiguous() for one in tensors):
        return None
    first = tensors[0]
    start, storage = first.storage_offset(), first.untyped_storage().data_ptr()
    for index, one in enumerate(tensors):
        place = one.untyped_storage().data_ptr(), one.storage_offset(), one.dtype
        if place != (storage, start + index * rows * columns, first.dtype):
            return None
    return first.as_strided(shape, (rows * columns, columns, 1))
