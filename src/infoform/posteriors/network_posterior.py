"""The posterior over all layers: one `LayerPosterior` each, independent of each other."""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeVar

import torch
from torch import Tensor

from infoform.common.threads import side_by_side
from infoform.posteriors import LayerPosterior
from infoform.posteriors.batched_sampling import SameShapeLayers, grouped

Item = TypeVar("Item", bound=Hashable)
SMALL = 2**18  # numbers of a layer's samples that one thread alone draws best


@dataclass(frozen=True)
class Posterior:
    """Layers by name; block-diagonal over them.

    Args:
        layers: The posterior of each layer.

    Example:
        ```python
        posterior = laplace.posterior()
        deviations = posterior.sample(2)
        assert deviations["0"].shape == (2, *posterior.layers["0"].shape)
        ```
    """

    layers: Mapping[str, LayerPosterior]

    @property
    def nbytes(self) -> int:
        """Return the bytes of all that is stored."""
        return sum(layer.nbytes for layer in self.layers.values())

    def log_det(self) -> Tensor:
        """Return log det P of all layers together.

        Returns:
            A number, in float64.
        """
        return torch.stack([layer.log_det().double().cpu() for layer in self.layers.values()]).sum()

    def sample(
        self,
        count: int,
        *,
        generator: torch.Generator | None = None,
        out: Mapping[str, Tensor] | None = None,
    ) -> dict[str, Tensor]:
        """Draw deviations from the trained weights.

        Args:
            count: How many.
            generator: Of the random numbers; torch's own where not given.
            out: An earlier draw, whose memory is used.

        Returns:
            Deviations (count, G, A) by layer.
        """
        old = out or {}
        if generator is not None and generator.device.type != "cpu":
            return {
                name: layer.sample(count, generator=generator, out=old.get(name)) for name, layer in self.layers.items()
            }
        seeds = self._seeds(generator)
        if count == 1:
            return self._sample_one(seeds, old)
        draw = partial(self._draw, count=count, seeds=seeds, old=old)
        sizes = {name: count * math.prod(layer.noise_shape) for name, layer in self.layers.items()}
        alone, together = _shared_out(sizes)
        drawn = {name: draw(name) for name in alone}
        drawn |= zip(together, side_by_side(draw, together), strict=True)
        return {name: drawn[name] for name in self.layers}

    def sample_each(
        self, times: int, *, generator: torch.Generator | None = None, out: Sequence[Mapping[str, Tensor]] = ()
    ) -> list[dict[str, Tensor]]:
        """Draw what as many calls of `sample(1)` would, up to rounding, side by side: a thread for each of them.

        Args:
            times: How many.
            generator: Of the random numbers; torch's own where not given.
            out: Earlier draws, whose memory is used.

        Returns:
            One draw (1, G, A) by layer for each time.
        """
        if times == 1 or (generator is not None and generator.device.type != "cpu"):
            return [self.sample(1, generator=generator, out=old) for old in (*out[:times], *[{}] * (times - len(out)))]
        seeds = [self._seeds(generator) for _ in range(times)]

        def draw(index: int) -> dict[str, Tensor]:
            old = out[index] if index < len(out) else {}
            return self._ordered([group.sample(seeds=seeds[index], out=old) for group in self._groups])

        return side_by_side(draw, range(times))

    @cached_property
    def _groups(self) -> list[SameShapeLayers]:
        return grouped(self.layers)

    def _sample_one(self, seeds: Mapping[str, int], old: Mapping[str, Tensor]) -> dict[str, Tensor]:
        draw = partial(SameShapeLayers.sample, seeds=seeds, out=old)
        alone, together = _shared_out({group: group.size for group in self._groups})
        return self._ordered([*map(draw, alone), *side_by_side(draw, together)])

    def _ordered(self, parts: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        drawn = {name: one for part in parts for name, one in part.items()}
        return {name: drawn[name] for name in self.layers}

    def _seeds(self, generator: torch.Generator | None) -> dict[str, int]:
        seeds = torch.randint(2**62, (len(self.layers),), generator=generator).tolist()
        return dict(zip(self.layers, seeds, strict=True))

    def _draw(self, name: str, *, count: int, seeds: Mapping[str, int], old: Mapping[str, Tensor]) -> Tensor:
        own = torch.Generator().manual_seed(seeds[name])
        return self.layers[name].sample(count, generator=own, out=old.get(name))


def _shared_out(sizes: Mapping[Item, int]) -> tuple[list[Item], list[Item]]:
    """Say which of these all threads draw, one after the other, and which are drawn side by side, large ones first.

    Many keep all threads busy, each with one of them; of few, all threads share the large ones.
    """
    many = max(sizes.values()) * torch.get_num_threads() <= sum(sizes.values())
    alone = [] if many else [item for item, size in sizes.items() if size >= SMALL]
    together = [item for item in sizes if item not in alone]
    return alone, sorted(together, key=lambda item: -sizes[item])
