"""Which examples bases are found from: all but those whose Fisher vectors are too short to matter.

A trained network is sure of most examples, and their gradients are next to nothing beside those of the few others. An
example is left out where

    |v|² < θ E|v|²

so that what is left out has at most about a share θ of the energy that is sent back from the outputs. The mean is that
of the first examples, which are all taken: neither the batch size nor the number of processes changes the choice.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

WHOLE = 256  # examples that are all taken; their mean energy stands for that of all
KEPT = ("energy", "count", "share", "given")  # what is known after a batch
Agree = Callable[[tuple[float, int]], Sequence[tuple[float, int]]]  # a process' own value -> those of all


@dataclass
class Sieve:
    """Chooses among the examples of one pass, in their order."""

    floor: float  # θ
    agree: Agree = lambda own: [own]
    energy: float = 0.0  # of this process' examples among the first ones
    count: int = 0
    share: float = 1.0  # of the last batch's examples that were kept
    given: int = 0  # examples that the sums were given so far
    _mean: float | None = None

    def keep(self, vectors: Tensor, numbers: range) -> Tensor:  # (N, C) -> (N,)
        """Say which examples, of these numbers, are kept."""
        energies = vectors.double().square().sum(1)
        first = torch.arange(numbers.start, numbers.stop, numbers.step, device=energies.device) < WHOLE
        self.energy += float(energies[first].sum())
        self.count += int(first.sum())
        kept = first if numbers[-1] < WHOLE else first | (energies >= self.floor * self.mean())
        self.share = float(kept.double().mean())
        return kept

    def mean(self) -> float:
        """Return the mean energy of the first examples of all processes, each of which must ask for it in every pass.

        It is asked for when a process has met all of its own ones, so that it is the same in each.
        """
        if self._mean is None:
            found = self.agree((self.energy, self.count))
            self._mean = sum(energy for energy, _ in found) / max(1, sum(count for _, count in found))
        return self._mean

    def state(self) -> dict[str, float]:
        """Return what another object needs to go on after a batch; the mean is asked for anew."""
        return {name: getattr(self, name) for name in KEPT}

    def restore(self, state: Mapping[str, float]) -> None:
        """Go on from where another object was; at the start, where the state is empty."""
        for name in KEPT:
            if name in state:
                setattr(self, name, state[name])
