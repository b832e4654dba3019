"""Randomness that leaves no trace: the global generators are put back, and draws do not depend on the batch size."""

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

_GOLDEN, _FIRST, _SECOND = (
    one - 2**64 for one in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)  # as signed numbers
BLOCK = 2**17  # normal numbers that one thread draws at a time
EPOCHS = ("epoch", "iteration")  # what samplers and loaders call their counters of passes


@contextmanager
def isolated(seed: int, *, loader: object = None) -> Iterator[None]:
    """Seed Python's, NumPy's and torch's global generators, and put them back as found on leaving.

    A shuffling loader draws from them, or from its own, which is put back too, with the epoch of its sampler:
    every pass sees the same order.
    """
    own = [(generator, generator.get_state()) for generator in _generators(loader)]
    epochs = _epochs(loader)
    python, numeric = random.getstate(), np.random.get_state()  # noqa: NPY002
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices):
        try:
            torch.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed % 2**32)  # noqa: NPY002
            _draw_seed_of_workers(loader)
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numeric)  # noqa: NPY002
            for generator, state in own:
                generator.set_state(state)
            for owner, name, value in epochs:
                setattr(owner, name, value)


def normal(
    shape: tuple[int, ...], *, generator: torch.Generator | None, dtype: torch.dtype, out: Tensor | None = None
) -> Tensor:
    """Return standard normal numbers; many of them in blocks with seeds of their own, drawn by all threads.

    The numbers depend on the generator's state alone, not on the number of threads. The memory of `out` is used if it
    is what is wanted: a contiguous tensor of this shape, dtype and device.
    """
    source = torch.device("cpu") if generator is None else generator.device
    fits = out is not None and (out.shape, out.dtype, out.device) == (shape, dtype, source) and out.is_contiguous()
    numbers = out if out is not None and fits else torch.empty(shape, dtype=dtype, device=source)
    if numbers.numel() < 2 * BLOCK or source.type != "cpu":
        return numbers.normal_(generator=generator)
    blocks = numbers.flatten().split(BLOCK)
    seeds = torch.randint(2**62, (len(blocks),), generator=generator).tolist()

    def fill(block: Tensor, seed: int) -> None:
        block.normal_(generator=torch.Generator().manual_seed(seed))

    count = torch.get_num_threads()
    if count == 1:  # as within work that is side by side already
        for block, seed in zip(blocks, seeds, strict=True):
            fill(block, seed)
        return numbers
    with ThreadPoolExecutor(count) as threads:
        list(threads.map(fill, blocks, seeds))
    return numbers


def hashed_uniforms(seed: int, *counters: Tensor) -> Tensor:
    """Return uniform random numbers that depend on the seed and on whole numbers alone, which broadcast.

    A number of an example, a token and a draw is the same however many tokens the example is filled up with.
    """
    mixed = _mixed(torch.tensor(seed, dtype=torch.int64))
    for counter in counters:
        mixed = _mixed(mixed ^ counter.to(torch.int64))
    uniform: Tensor = (_shifted(mixed, 11).double() + 0.5) * 2.0**-53
    return uniform


def _mixed(x: Tensor) -> Tensor:
    """Return the next number of SplitMix64 (Steele et al. 2014); products wrap around, as they should."""
    x = x + _GOLDEN
    x = (x ^ _shifted(x, 30)) * _FIRST
    x = (x ^ _shifted(x, 27)) * _SECOND
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, bits: int) -> Tensor:
    shifted: Tensor = (x >> bits) & (2 ** (64 - bits) - 1)  # torch's own shift keeps the sign
    return shifted


class UniformStream:
    """Uniform random numbers for one example after the other, the same for every cut into batches."""

    def __init__(self, seed: int, shape: tuple[int, ...], *, block: int = 256) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._shape = shape
        self._block = block
        self._left = torch.empty((0, *shape), dtype=torch.float64)

    def take(self, count: int) -> Tensor:  # (count, *shape)
        """Return the numbers of the next `count` examples."""
        parts = [self._left]
        while sum(map(len, parts)) < count:
            parts.append(torch.rand((self._block, *self._shape), dtype=torch.float64, generator=self._generator))
        numbers = torch.cat(parts)
        self._left = numbers[count:]
        return numbers[:count]

    def skip(self, count: int) -> None:
        """Leave out the numbers of the next `count` examples, however many."""
        for start in range(0, count, BLOCK):
            self.take(min(BLOCK, count - start))


def _draw_seed_of_workers(loader: object) -> None:
    """Draw the number that a DataLoader with persistent workers draws before its order, but in its first pass only.

    Without it the order of the first pass would be another than that of all passes after it.
    """
    if getattr(loader, "persistent_workers", False) and getattr(loader, "_iterator", None) is not None:
        torch.empty((), dtype=torch.int64).random_(generator=getattr(loader, "generator", None))


def _generators(loader: object) -> list[torch.Generator]:
    """Return the generators that a DataLoader or its samplers draw from, each once."""
    found = [getattr(owner, "generator", None) for owner in _with_samplers(loader)]
    return list({id(one): one for one in found if isinstance(one, torch.Generator)}.values())


def _epochs(loader: object) -> list[tuple[object, str, int]]:
    """Return the counters of passes that samplers add to their seeds, as those of Accelerate do, with their values."""
    owners = _with_samplers(loader)
    held = [(owner, name, getattr(owner, "__dict__", {}).get(name)) for owner in owners for name in EPOCHS]
    return [(owner, name, value) for owner, name, value in held if type(value) is int]


def _with_samplers(loader: object) -> list[object]:
    """Return a DataLoader, its samplers and those within them."""
    found: list[object] = []
    waiting = [loader]
    while waiting:
        owner = waiting.pop()
        if owner is not None and all(owner is not one for one in found):
            found.append(owner)
            waiting += [getattr(owner, name, None) for name in ("sampler", "batch_sampler")]
    return found
