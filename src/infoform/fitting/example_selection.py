"""Which examples bases are found from, and measured on: all but those whose Fisher vectors are too short to matter.

A trained network is sure of most examples, and their gradients are next to nothing beside those of the few others. An
example is left out where

    |v|² < θ E|v|²

so that the examples left out have less than a share θ of the energy that is sent back from the outputs. The first
`WHOLE` examples are always selected. The selection has two stages:

1. While the first pass reads, from which bases are found, the mean is that of the first examples (`ExampleSelector`).
2. After it the mean of all examples that it has read is known, and the second pass measures along the bases on the
   examples that either mean selects (`Selection`).

Neither the batch size nor the number of processes changes the selection. An example takes six bytes (ten in float64)
while the first pass reads, and two from then on.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from infoform.common.float64 import in_double

WHOLE = 256  # examples that are all selected; their mean energy stands for that of all
BLOCK = 2**16  # examples
Gather = Callable[[tuple[float, int]], Sequence[tuple[float, int]]]  # a process' own value -> those of all processes


@dataclass(frozen=True)
class Selection:
    """The examples that the second pass measures, by what is known of all of them after the first."""

    floor: float  # θ
    mean: float  # of |v|², over the examples of all processes that the first pass has read
    selected: Tensor  # (N,) whether the second pass measures an example, in the order of this process
    deferred: Tensor  # (N,) whether the first pass has left the diagonal of an example to the second

    def select(self, vectors: Tensor, numbers: Tensor) -> Tensor:  # (N, C), (N,) -> (N,)
        """Say which examples are measured where the first pass has read a part of them only, and the second reads all.

        Args:
            vectors: The Fisher vectors of the examples.
            numbers: The numbers of the examples among those of all processes.
        """
        return (numbers < WHOLE) | (_energies(vectors) >= self.floor * self.mean)

    def state(self) -> tuple[dict[str, Tensor], dict[str, float]]:
        """Return the selection as tensors and plain values, for a checkpoint."""
        return {"selected": self.selected, "deferred": self.deferred}, {"floor": self.floor, "mean": self.mean}

    @classmethod
    def restored(cls, tensors: Mapping[str, Tensor], values: Mapping[str, float]) -> "Selection":
        """Undo `state`."""
        return cls(values["floor"], values["mean"], tensors["selected"].cpu(), tensors["deferred"].cpu())


@dataclass
class ExampleValues:
    """One number for each example, in their order, in blocks of one size: small tensors would scatter the memory."""

    _blocks: list[Tensor] = field(default_factory=list)  # (BLOCK,) each
    _count: int = 0

    @classmethod
    def of(cls, values: Tensor | None) -> "ExampleValues":  # (N,)
        found = cls()
        if values is not None:
            found.add(values.cpu())
        return found

    def add(self, values: Tensor) -> None:  # (N,)
        while len(values):
            place = self._count % BLOCK
            if place == 0:
                self._blocks.append(values.new_empty(BLOCK))
            part, values = values[: BLOCK - place], values[BLOCK - place :]
            self._blocks[-1][place : place + len(part)] = part
            self._count += len(part)

    def __iter__(self) -> Iterator[Tensor]:
        """Yield the blocks, the last one up to its end."""
        for place, block in enumerate(self._blocks):
            yield block[: self._count - place * BLOCK]

    def __len__(self) -> int:
        return self._count


@dataclass
class ExampleSelector:
    """Selects among the examples of one process while the first pass reads them, in their order."""

    floor: float  # θ
    gather: Gather = lambda own: [own]
    energy: float = 0.0  # of this process' examples among the first ones
    count: int = 0  # of these examples
    _energies: ExampleValues = field(default_factory=ExampleValues)  # in the dtype of the Fisher vectors
    _selected: ExampleValues = field(default_factory=ExampleValues)
    _deferred: ExampleValues = field(default_factory=ExampleValues)
    _first_mean: float | None = None  # of the first examples of all processes

    def select(self, vectors: Tensor, numbers: Tensor, *, every: bool = False) -> Tensor:  # (N, C), (N,) -> (N,)
        """Say which of the next examples bases are found from.

        The diagonal of a batch whose examples are all selected is deferred to the second pass, which reads the whole
        batch again and forms its gradients anyway.

        Args:
            vectors: The Fisher vectors of the examples.
            numbers: The numbers of the examples among those of all processes.
            every: Whether to select all of them.
        """
        energies, first = _energies(vectors), numbers < WHOLE
        self.energy += float(energies[first].sum())
        self.count += int(first.sum())
        always = torch.ones_like(first) if every else first
        selected = always if bool(first.all()) else always | (energies >= self.floor * self._mean_of_first())
        self._energies.add(_narrowed(energies, vectors.dtype))
        self._selected.add(selected)
        self._deferred.add(torch.full_like(selected, bool(selected.all())))
        return selected

    def finish_first_pass(self) -> Selection:
        """Return the examples that the second pass measures; all processes must call it."""
        self._mean_of_first()  # other processes may still ask for what this one knows of it
        mean = self._mean_of_all(sum(float(in_double(one).sum()) for one in self._energies), len(self._energies))
        pairs = zip(self._selected, self._energies, strict=True)
        none = torch.zeros(0, dtype=torch.bool)
        selected = torch.cat([none, *(one | (energies >= self.floor * mean) for one, energies in pairs)])
        return Selection(self.floor, mean, selected, torch.cat([none, *self._deferred]))

    def state(self) -> tuple[dict[str, Tensor], dict[str, float]]:
        """Return what another object needs to go on after a batch; the mean of the first examples is gathered anew."""
        values = {"energies": self._energies, "selected": self._selected, "deferred": self._deferred}
        return {name: torch.cat([*one]) for name, one in values.items() if len(one)}, {
            "energy": self.energy,
            "count": self.count,
        }

    def restore(self, tensors: Mapping[str, Tensor], values: Mapping[str, float]) -> None:
        """Go on from where another object was."""
        self._energies, self._selected, self._deferred = (
            ExampleValues.of(tensors.get(name)) for name in ("energies", "selected", "deferred")
        )
        self.energy, self.count = float(values["energy"]), int(values["count"])

    def _mean_of_first(self) -> float:
        """Return the mean of the first examples of all processes, when this one has met all of its own."""
        if self._first_mean is None:
            self._first_mean = self._mean_of_all(self.energy, self.count)
        return self._first_mean

    def _mean_of_all(self, energy: float, count: int) -> float:
        found = self.gather((energy, count))
        return sum(one for one, _ in found) / max(1, sum(one for _, one in found))


def _narrowed(energies: Tensor, dtype: torch.dtype) -> Tensor:  # (N,)
    """Return energies in float64 where the vectors are, else in float32."""
    if dtype == torch.float64:
        return energies
    return energies.clamp(max=torch.finfo(torch.float32).max).float()


def _energies(vectors: Tensor) -> Tensor:  # (N, *P, C) -> (N,)
    return in_double(vectors).square().flatten(1).sum(1).cpu()
