"""Which examples bases are found from, and measured on: all but those whose Fisher vectors are too short to matter.

A trained network is sure of most examples, and their gradients are next to nothing beside those of the few others. An
example is left out where

    |v|² < θ E|v|²

so that what is left out has less than a share θ of the energy that is sent back from the outputs. In the first pass,
which bases are found in, the mean is that of the first examples, which are all taken; the second, which measures along
them, adds those that the mean of all would take. Where the first reads a part of the data, that mean decides over all
but the first examples in the second. Neither the batch size nor the number of processes changes the choice.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from infoform.common.float64 import in_double

WHOLE = 256  # examples that are all taken; their mean energy stands for that of all
Agree = Callable[[tuple[float, int]], Sequence[tuple[float, int]]]  # a process' own value -> those of all


@dataclass
class ExampleSelector:
    """Chooses among the examples of one process, in their order."""

    floor: float  # θ
    agree: Agree = lambda own: [own]
    energy: float = 0.0  # of this process' examples among the first ones
    count: int = 0
    _energies: list[Tensor] = field(default_factory=list)  # (N,) a batch, in their order
    _chosen: list[Tensor] = field(default_factory=list)  # (N,) in the first pass
    _left: list[Tensor] = field(default_factory=list)  # (N,) batches of which all were, whose squares can wait
    _kept: Tensor | None = None  # (N,) of all, once the first pass is over
    mean: float | None = None  # of all that the first pass has read, once it is over
    _first: float | None = None  # mean of the first examples

    def choose(self, vectors: Tensor, numbers: Tensor, *, every: bool = False) -> Tensor:  # (N, C), (N,) -> (N,)
        """Say which of the next examples, of these numbers, bases are found from; `every` one, if told so."""
        energies, first = _energies(vectors), numbers < WHOLE
        self.energy += float(energies[first].sum())
        self.count += int(first.sum())
        always = torch.ones_like(first) if every else first
        chosen = always if bool(first.all()) else always | (energies >= self.floor * self._first_mean())
        self._energies.append(energies)
        self._chosen.append(chosen)
        self._left.append(torch.full_like(chosen, bool(chosen.all())))
        return chosen

    def settle(self) -> None:
        """End the first pass: know which examples the second one reads; all processes must call it."""
        self._first_mean()  # others may still ask for what this one knows of it
        energies = torch.cat([torch.zeros(0, dtype=torch.float64), *self._energies])
        self.mean = self._over_all(float(energies.sum()), len(energies))
        chosen, left = (torch.cat([torch.zeros(0, dtype=torch.bool), *one]) for one in (self._chosen, self._left))
        self._kept, self._left = chosen | (energies >= self.floor * self.mean), [left]

    @property
    def settled(self) -> bool:
        return self.mean is not None

    def measured(self, vectors: Tensor, numbers: Tensor) -> Tensor:  # (N, C), (N,) -> (N,)
        """Say which of some examples are measured, where the second pass reads all of them."""
        assert self.mean is not None
        return (numbers < WHOLE) | (_energies(vectors) >= self.floor * self.mean)

    def kept(self, done: int, count: int) -> Tensor:  # -> (N,)
        """Say which of so many examples, after those that are done, the second pass reads."""
        assert self._kept is not None
        return self._kept[done : done + count]

    def left(self, done: int, count: int) -> Tensor:  # -> (N,)
        """Say the squares of which of so many examples, after those that are done, were left to the second pass.

        They are those of batches that it reads whole, whose gradients it forms anyway.
        """
        assert self._kept is not None
        return self._left[0][done : done + count]

    def state(self) -> tuple[dict[str, Tensor], dict[str, float]]:
        """Return what another object needs to go on after a batch; that of the first ones is asked for anew."""
        lists = {"energies": self._energies, "chosen": self._chosen, "left": self._left}
        tensors = {name: torch.cat(one) for name, one in lists.items() if one}
        if self._kept is not None:
            tensors["kept"] = self._kept
        values: dict[str, float] = {"energy": self.energy, "count": self.count}
        return tensors, values if self.mean is None else values | {"mean": self.mean}

    def restore(self, tensors: Mapping[str, Tensor], values: Mapping[str, float]) -> None:
        """Go on from where another object was."""
        given = {name: one.cpu() for name, one in tensors.items()}
        self._energies, self._chosen, self._left = (
            [given[name]] if name in given else [] for name in ("energies", "chosen", "left")
        )
        self._kept = given.get("kept")
        self.energy, self.count = float(values["energy"]), int(values["count"])
        self.mean = float(values["mean"]) if "mean" in values else None

    def _first_mean(self) -> float:
        """Return the mean of the first examples of all processes, when this one has met all of its own."""
        if self._first is None:
            self._first = self._over_all(self.energy, self.count)
        return self._first

    def _over_all(self, energy: float, count: int) -> float:
        found = self.agree((energy, count))
        return sum(one for one, _ in found) / max(1, sum(one for _, one in found))


def _energies(vectors: Tensor) -> Tensor:  # (N, C) -> (N,)
    return in_double(vectors).square().sum(1).cpu()
