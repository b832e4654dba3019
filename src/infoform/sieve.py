"""Which examples bases are found from, and measured on: all but those whose Fisher vectors are too short to matter.

A trained network is sure of most examples, and their gradients are next to nothing beside those of the few others. An
example is left out where

    |v|² < θ E|v|²

so that what is left out has at most about a share θ of the energy that is sent back from the outputs. The mean is that
of the first examples, which are all taken: neither the batch size nor the number of processes changes the choice. What
was chosen in the first pass over the data is taken in the second.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

WHOLE = 256  # examples that are all taken; their mean energy stands for that of all
Agree = Callable[[tuple[float, int]], Sequence[tuple[float, int]]]  # a process' own value -> those of all


@dataclass
class Sieve:
    """Chooses among the examples of one process, in their order."""

    floor: float  # θ
    agree: Agree = lambda own: [own]
    energy: float = 0.0  # of this process' examples among the first ones
    count: int = 0
    _chosen: list[Tensor] = field(default_factory=list)  # (N,) a batch, in their order
    _mean: float | None = None

    def choose(self, vectors: Tensor, numbers: Tensor) -> Tensor:  # (N, C), (N,) -> (N,)
        """Say which examples, of these numbers, are kept."""
        energies, first = vectors.double().square().sum(1).cpu(), numbers < WHOLE
        self.energy += float(energies[first].sum())
        self.count += int(first.sum())
        return first if bool(first.all()) else first | (energies >= self.floor * self.mean())

    def remember(self, chosen: Tensor) -> None:  # (N,)
        """Keep for the second pass what was chosen of a batch."""
        self._chosen.append(chosen)

    def chosen(self, done: int, count: int) -> Tensor:  # -> (N,)
        """Return what was chosen of so many examples, after those that are done."""
        if len(self._chosen) > 1:
            self._chosen = [torch.cat(self._chosen)]
        return self._chosen[0][done : done + count]

    def kept(self) -> int:
        """Return how many examples were chosen."""
        return sum(int(one.sum()) for one in self._chosen)

    def mean(self) -> float:
        """Return the mean energy of the first examples of all processes, each of which must ask for it in a pass.

        It is asked for when a process has met all of its own ones, so that it is the same in each.
        """
        if self._mean is None:
            found = self.agree((self.energy, self.count))
            self._mean = sum(energy for energy, _ in found) / max(1, sum(count for _, count in found))
        return self._mean

    def state(self) -> tuple[dict[str, Tensor], dict[str, float]]:
        """Return what another object needs to go on after a batch; the mean is asked for anew."""
        tensors = {"chosen": torch.cat(self._chosen)} if self._chosen else {}
        return tensors, {"energy": self.energy, "count": self.count}

    def restore(self, tensors: Mapping[str, Tensor], values: Mapping[str, float]) -> None:
        """Go on from where another object was."""
        self._chosen = [tensors["chosen"]] if "chosen" in tensors else []
        self.energy, self.count = float(values["energy"]), int(values["count"])
