"""How a pass reads the examples of a batch: all of them, or those that matter for the bases.

A batch is cut before it goes through the network. Its examples are told apart when their Fisher vectors are known,
and go on as one value, `BatchExamples`, to the sums.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from infoform.fitting.example_selection import WHOLE, ExampleSelector, Selection
from infoform.network.batches import Batch, batch_size, select_rows

State = tuple[dict[str, Tensor], dict[str, Any]]  # tensors and plain values, for a checkpoint


@dataclass(frozen=True)
class BatchPart:
    """The part of a batch that goes through the network."""

    batch: Batch
    start: int  # examples that this process has read before the batch
    rows: Tensor | None = None  # (n,) the examples of the whole batch that are in the part; None for all
    whole: int | None = None  # examples of the whole batch; None where the network's outputs have to tell

    @property
    def is_empty(self) -> bool:
        return self.rows is not None and len(self.rows) == 0

    def positions(self, count: int) -> Tensor:  # (n,)
        """Return where the examples of the part, so many, stand in the order of this process."""
        return torch.arange(self.start, self.start + count) if self.rows is None else self.rows + self.start


@dataclass(frozen=True)
class BatchExamples:
    """The examples of a batch on their way into the sums."""

    numbers: Tensor  # (N,) among the examples of all processes, and of earlier fits
    selected: Tensor | None = None  # (N,) which examples the sums over selected ones take; None for all
    added_now: Tensor | None = None  # (N,) which examples are added now to sums that one of two passes adds to
    sent: Tensor | None = None  # (N,) which Fisher vectors are sent back; None for all

    def part(self, which: slice) -> "BatchExamples":
        """Return some of the examples."""
        selected, added_now = (None if one is None else one[which] for one in (self.selected, self.added_now))
        return BatchExamples(self.numbers[which], selected, added_now)

    def masked(self, vectors: Tensor) -> Tensor:  # (N, *P, C) -> (N, *P, C)
        """Return the Fisher vectors, zero for the examples that are not sent back."""
        if self.sent is None:
            return vectors
        return vectors * self.sent.to(vectors).view(-1, *[1] * (vectors.dim() - 1))


class Reading(ABC):
    """A way to read the examples of a pass."""

    def cut(self, batch: Batch, start: int, *, divisible: bool = True) -> BatchPart:
        """Return the part of a batch that goes through the network, after `start` examples of this process: all.

        Args:
            batch: The batch.
            start: Examples that this process has read before.
            divisible: Whether examples can be taken out of batches that look like it.
        """
        return BatchPart(batch, start)

    @abstractmethod
    def examples(self, vectors: Tensor, numbers: Tensor, part: BatchPart, *, new_layer: bool) -> BatchExamples:
        """Tell the examples of a part from each other.

        Args:
            vectors: Their Fisher vectors (N, C).
            numbers: Their numbers (N,).
            part: The part of a batch that they are.
            new_layer: Whether the part calls a layer that no gradient has reached so far.
        """

    def state(self) -> State:
        """Return what another object needs to go on after a batch."""
        return {}, {}

    def restore(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:  # noqa: B027
        """Go on from where another object was; most readings have no state."""

    def selection(self) -> Selection | None:
        """Return the examples that the passes after this one measure; all processes must call it at its end."""
        return None


class EveryExample(Reading):
    """Reads every example, and tells none from the others."""

    def examples(self, vectors: Tensor, numbers: Tensor, part: BatchPart, *, new_layer: bool) -> BatchExamples:
        return BatchExamples(numbers)


class SelectingExamples(Reading):
    """Reads every example, and selects those that bases are found from: all, where a new layer needs a basis."""

    def __init__(self, selector: ExampleSelector) -> None:
        self._selector = selector

    def examples(self, vectors: Tensor, numbers: Tensor, part: BatchPart, *, new_layer: bool) -> BatchExamples:
        selected = self._selector.select(vectors, numbers, every=new_layer and int(numbers[0]) >= WHOLE)
        # the second pass reads a batch whole whose examples are all selected, and adds its diagonal
        return BatchExamples(numbers, selected, added_now=torch.full_like(selected, not bool(selected.all())))

    def state(self) -> State:
        return self._selector.state()

    def restore(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        self._selector.restore(tensors, values)

    def selection(self) -> Selection | None:
        return self._selector.finish_first_pass()


class MeasuringSelected(Reading):
    """Reads every example, of which the pass before has read a part, and selects those that are measured."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection

    def examples(self, vectors: Tensor, numbers: Tensor, part: BatchPart, *, new_layer: bool) -> BatchExamples:
        return BatchExamples(numbers, self._selection.select(vectors, numbers))


class RereadingSelected(Reading):
    """Reads the examples alone that were selected when the pass before has read all of them."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection

    def cut(self, batch: Batch, start: int, *, divisible: bool = True) -> BatchPart:
        size = batch_size(batch)
        rows = self._selection.selected[start : start + size].nonzero().squeeze(1)
        device = next((one.device for one in batch.tensors()), rows.device)
        some = select_rows(batch, rows.to(device)) if divisible else None
        # a batch that cannot be cut goes through the network whole, and nothing is sent back to the other examples
        return BatchPart(batch, start) if some is None else BatchPart(some, start, rows, size)

    def examples(self, vectors: Tensor, numbers: Tensor, part: BatchPart, *, new_layer: bool) -> BatchExamples:
        own = part.positions(len(numbers))
        sent = self._selection.selected[own] if part.rows is None else None
        return BatchExamples(numbers, added_now=self._selection.deferred[own], sent=sent)
