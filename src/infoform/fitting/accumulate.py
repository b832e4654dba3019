"""From a layer's calls in backward passes to its sums: as many examples at a time as a processor's cache holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from infoform.fitting.chunks import ALONE_BYTES, ChunkLimits, waiting_rows
from infoform.fitting.layer_gradients import WeightUse, form_gradients
from infoform.fitting.per_example_gradients import Gradients
from infoform.fitting.reading import BatchExamples
from infoform.fitting.running_sums import Sums
from infoform.fitting.waiting import WaitingGradients
from infoform.network.capture import Call
from infoform.network.layer import Layer


@dataclass(frozen=True)
class PassSums:
    """The running sums of one layer in one pass, by the examples that are added to them."""

    every: Sequence[Sums] = ()  # every example
    selected: Sequence[Sums] = ()  # selected examples alone
    once: Sequence[Sums] = ()  # every example, in one of two passes
    last: bool = False  # whether this pass is the second of the two

    @property
    def all(self) -> tuple[Sums, ...]:
        return (*self.every, *self.selected, *self.once)

    @property
    def finished(self) -> tuple[Sums, ...]:
        """Return the sums that no other pass adds to."""
        return self.all if self.last else (*self.every, *self.selected)


class GradientAccumulator:
    """Adds the gradients of one layer to its sums during one pass.

    Rank-one gradients, of layers that use their weight once an example, wait over batches until there are enough of
    them for products at full speed; those of shared weights are added at once, in parts of a batch.
    """

    def __init__(self, layer: Layer, sums: PassSums, limits: ChunkLimits) -> None:
        self._layer, self._sums, self._limits = layer, sums, limits
        self._waiting: WaitingGradients | None = None
        self._sizes: tuple[object, ...] = ()  # of the last calls, from which the following two are known
        self._step, self._outer = 1, False  # examples at a time, and whether the weight is used once

    @property
    def waits(self) -> bool:
        """Whether gradients wait over batches, and may not be in the sums yet."""
        return self._outer and self._limits.single

    def add(self, calls: list[Call], examples: BatchExamples, *, first: bool) -> None:
        """Add one backward pass.

        Args:
            calls: The calls of the layer that gradients came back to.
            examples: The examples of the batch.
            first: Whether it was the first Fisher vector of the batch.
        """
        if not self._sums.all:
            return
        self._look_at(calls)
        if self.waits:
            self._wait(calls[0], examples)
            return
        for start in range(0, len(calls[0].inputs), self._step):
            part = slice(start, start + self._step)
            self._add(form_gradients(self._layer, calls, part), examples.part(part), first)

    def release(self) -> None:
        """Add the gradients that wait."""
        if self._waiting is not None and self._waiting.count:
            # the first of two passes has them all in hand: the second need not form them again
            self._add(*self._waiting.take(added_now=not self._sums.last), first=True)

    def state(self) -> dict[str, Tensor]:
        """Return what waits and is in no sum yet, so that another object can go on from here after a batch."""
        return self._waiting.state() if self._waiting is not None and self._waiting.count else {}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what waited in another object."""
        if state:
            self._waiting = WaitingGradients.restored(self._layer, state)

    def is_finite(self) -> bool:
        """Whether everything added so far was finite and the sums did not overflow."""
        return all(one.is_finite() for one in self._sums.all)

    def _add(self, gradients: Gradients, examples: BatchExamples, first: bool) -> None:
        # the diagonal first: where it forms ∇, the others need not
        groups = (
            (self._sums.once, examples.added_now),
            (self._sums.every, None),
            (self._sums.selected, examples.selected),
        )
        for sums, which in groups:
            if not sums or (which is not None and not bool(which.any())):
                continue
            some, numbers = gradients, examples.numbers
            if which is not None and not bool(which.all()):
                rows = which.nonzero().squeeze(1)
                some, numbers = gradients.rows(rows.to(gradients.positions.device)), numbers[rows]
            for one in sums:
                one.add(some, numbers=numbers, first=first)

    def _wait(self, call: Call, examples: BatchExamples) -> None:
        if self._waiting is None or not self._waiting.fits(call):
            self.release()
            self._waiting = WaitingGradients(self._layer, call.inputs.new_empty(0, dtype=call.dtype), self._step)
        done, size = 0, len(call.inputs)
        while done < size:
            done += self._waiting.write(call, examples, done)
            if self._waiting.full:
                self.release()

    def _look_at(self, calls: list[Call]) -> None:
        """Find out how many examples to take at a time, so that patches and gradients stay within the limits."""
        sizes = tuple((call.inputs.shape[1:], call.inputs.dtype) for call in calls)
        if sizes == self._sizes:
            return
        use, limits = WeightUse.of(self._layer, calls), self._limits
        outputs, inputs = self._layer.shape
        self._sizes, self._outer = sizes, use.outer
        if use.outer:
            size = use.itemsize * (inputs + outputs)
            self._step = waiting_rows(size, limits.chunk) if self.waits else max(1, limits.chunk // size)
            return
        sums = self._sums.all
        forms, alone = any(one.forms_gradients for one in sums), all(one.one_by_one for one in sums)
        patches = use.groups * use.positions * inputs if use.unfolds or not alone else 0
        formed = outputs * inputs if use.width is None else use.width
        size = use.itemsize * (patches + (formed if forms else 0))
        self._step = max(1, (min(limits.shared, ALONE_BYTES) if alone else limits.shared) // size)
