"""From a layer's calls in backward passes to its sums: as many examples at a time as a processor's cache holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from infoform.common.matmul import aligned
from infoform.fitting.per_example_gradients import Gradients, OuterGradients, SharedGradients
from infoform.fitting.running_sums import Sums
from infoform.layers.base import is_outer
from infoform.network.capture import Call
from infoform.network.layer import Layer

WAITING_SHARE_OF_CHUNK = (
    8  # of a fit's chunk, rank-one gradients, that wait for those of later batches, take an eighth in each layer,
)
WAITING_ROWS = 256  # but no more than so many examples, enough for products near full speed,
WAITING_BYTES = 2**20  # unless all of them are small
SHARED_BYTES = 8 * 2**20  # for patches and gradients of shared weights at least, and
SHARED_SHARE_OF_MODEL = (
    2 / 3
)  # where it is more, so much of the model's own bytes: a fit is to take no more than a gradient pass
ALONE_BYTES = 4 * 2**20  # at most, where the diagonal is all that is wanted: ∇ then stays in the processor's cache


class GradientAccumulator:
    """Takes in the gradients of one layer during one pass.

    Rank-one gradients, of layers that use their weight once an example, are kept over batches until there are enough
    of them for products at full speed; those of shared weights are added at once, in parts of a batch.
    """

    def __init__(
        self,
        layer: Layer,
        sums: Sequence[Sums],
        *,
        limit: int,
        single: bool,
        shared: int | None = None,
        of_chosen: Sequence[Sums] = (),
        once: Sequence[Sums] = (),
        again: bool = False,
    ) -> None:
        self._layer, self._sums, self._limit = layer, sums, limit
        self._of_chosen = of_chosen  # sums over chosen examples alone
        self._once = once  # sums of one of two passes: of the first, where the weight is used once an example,
        self._again = again  # and of either otherwise
        self._shared = limit if shared is None else shared  # of the limit, for weights that are used more than once
        self._single = single  # one Fisher vector an example: gradients of several batches may be kept together
        self._kept: _Rows | None = None
        self._seen: tuple[object, ...] = ()  # sizes of the last calls, and what follows from them
        self._step, self._outer = 1, False

    @property
    def keeps(self) -> bool:
        """Whether gradients are kept over batches, and may not be in the sums yet."""
        return self._outer and self._single

    def add(
        self,
        calls: list[Call],
        *,
        numbers: Tensor,
        first: bool,
        chosen: Tensor | None = None,
        now: Tensor | None = None,
    ) -> None:
        """Add one backward pass; `numbers` and `first` are as in `Sums.add`.

        Of the examples, `chosen` (N,) are added to the sums over chosen ones, those of a shared weight that are `now`
        (N,) to the sums of one of two passes.
        """
        if not (self._sums or self._of_chosen or self._once):
            return
        self._measure(calls)
        if self.keeps:
            self._keep(calls[0], numbers, chosen)
            return
        for start in range(0, len(calls[0].inputs), self._step):
            part = slice(start, start + self._step)
            gradients = _form(self._layer, calls, part)
            self._add(gradients, numbers[part], first, *(None if one is None else one[part] for one in (chosen, now)))

    def release(self) -> None:
        """Add what was kept."""
        if self._kept is not None and self._kept.count:
            numbers, chosen = self._kept.numbers, self._kept.chosen
            self._add(self._kept.take(), numbers, True, chosen, torch.full_like(chosen, not self._again))

    def state(self) -> dict[str, Tensor]:
        """Return what is kept and in no sum yet, so that another object can go on from here after a batch."""
        return self._kept.state() if self._kept is not None and self._kept.count else {}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what another object had kept."""
        if state:
            self._kept = _Rows.restored(self._layer, state)

    def is_finite(self) -> bool:
        """Whether everything added so far was finite and the sums did not overflow."""
        return all(one.is_finite() for one in (*self._sums, *self._of_chosen, *self._once))

    def _add(
        self, gradients: Gradients, numbers: Tensor, first: bool, chosen: Tensor | None, now: Tensor | None
    ) -> None:
        # the diagonal first: where it forms ∇, the others need not
        for sums, which in ((self._once, now), (self._sums, None), (self._of_chosen, chosen)):
            if not sums or (which is not None and not bool(which.any())):
                continue
            some, own = gradients, numbers
            if which is not None and not bool(which.all()):
                rows = which.nonzero().squeeze(1)
                some, own = gradients.rows(rows.to(gradients.positions.device)), numbers[rows]
            for one in sums:
                one.add(some, numbers=own, first=first)

    def _keep(self, call: Call, numbers: Tensor, chosen: Tensor | None) -> None:
        if self._kept is None or not self._kept.fits(call):
            self.release()
            self._kept = _Rows(self._layer, call.inputs.new_empty(0, dtype=call.dtype), self._step)
        done, size = 0, len(call.inputs)
        while done < size:
            done += self._kept.write(call, slice(done, size), numbers, chosen)
            if self._kept.full:
                self.release()

    def _measure(self, calls: list[Call]) -> None:
        """Find out how many examples to take at a time, so that patches and gradients stay within the limit."""
        sizes = tuple((call.inputs.shape[1:], call.inputs.dtype) for call in calls)
        if sizes == self._seen:
            return
        uses = _uses(calls, slice(0, 1))
        positions = _positions(self._layer, uses)
        groups, _, count, _ = positions.shape
        outputs, inputs = self._layer.shape
        self._outer = is_outer(positions)
        every = (*self._sums, *self._of_chosen, *self._once)
        forms, alone = any(one.forms_gradients for one in every), all(one.one_by_one for one in every)
        unfolds = not (alone and _Inputs(self._layer, uses).forms_matrices)
        size = inputs + outputs if self._outer else forms * outputs * inputs + unfolds * groups * count * inputs
        size *= positions.element_size()
        limit = self._limit if self._outer else min(self._shared, ALONE_BYTES) if alone else self._shared
        self._step = waiting_rows(size, limit) if self.keeps else max(1, limit // size)
        self._seen = sizes


class _Rows:
    """Rank-one gradients g aᵀ of up to `capacity` examples, as rows of two matrices."""

    def __init__(self, layer: Layer, given: Tensor, capacity: int) -> None:
        outputs, inputs = layer.shape
        like = given.new_empty(0, dtype=_wide(given.dtype))
        self._layer, self._dtype = layer, given.dtype
        self._inputs = aligned(like, capacity, inputs)
        self._outputs = aligned(like, capacity, outputs)
        self._numbers = torch.empty(capacity, dtype=torch.int64)
        self._chosen = torch.empty(capacity, dtype=torch.bool)
        self.count = 0

    @property
    def full(self) -> bool:
        return self.count == len(self._inputs)

    @property
    def numbers(self) -> Tensor:  # (count,)
        return self._numbers[: self.count]

    @property
    def chosen(self) -> Tensor:  # (count,)
        return self._chosen[: self.count]

    def fits(self, call: Call) -> bool:
        return call.dtype == self._dtype and call.inputs.device == self._inputs.device

    def write(self, call: Call, part: slice, numbers: Tensor, chosen: Tensor | None) -> int:
        """Write as many of these examples as there is room for, and return how many."""
        assert call.gradients is not None
        size: int = min(part.stop - part.start, len(self._inputs) - self.count)
        room = slice(self.count, self.count + size)
        given = slice(part.start, part.start + size)
        self._layer.rule.write_rows(call.module, call.inputs[given], self._inputs[room])
        self._outputs[room] = self._layer.rule.gradients(call.module, call.gradients[given])[0, :, 0]
        self._numbers[room] = numbers[given]
        self._chosen[room] = True if chosen is None else chosen[given]
        self.count += size
        return size

    def take(self) -> OuterGradients:
        """Return what is here, and forget it; to be used before anything else is written."""
        count, self.count = self.count, 0
        return OuterGradients(self._inputs[:count], self._outputs[:count])

    def state(self) -> dict[str, Tensor]:
        return {
            "inputs": self._inputs[: self.count],
            "outputs": self._outputs[: self.count],
            "chosen": self.chosen,
            "numbers": self.numbers,
            "capacity": torch.tensor([len(self._inputs)]),
            "given": self._inputs.new_empty(0, dtype=self._dtype),
        }

    @classmethod
    def restored(cls, layer: Layer, state: Mapping[str, Tensor]) -> "_Rows":
        rows = cls(layer, state["given"], int(state["capacity"]))
        rows.count = len(state["inputs"])
        rows._inputs[: rows.count] = state["inputs"]
        rows._outputs[: rows.count] = state["outputs"]
        rows._numbers[: rows.count] = state["numbers"]
        rows._chosen[: rows.count] = state["chosen"]
        return rows


def waiting_rows(size: int, limit: int) -> int:
    """Return how many rank-one gradients, of so many bytes each, wait for those of later batches in a layer."""
    return max(1, min(limit // WAITING_SHARE_OF_CHUNK, max(WAITING_BYTES, WAITING_ROWS * size)) // size)


def shared_limit(limit: int, model_bytes: int) -> int:
    """Return how many bytes of patches and gradients of shared weights are held at a time."""
    return min(limit, max(SHARED_BYTES, int(model_bytes * SHARED_SHARE_OF_MODEL)))


@dataclass(frozen=True)
class _Use:
    """What one call of a layer saw and got back, of some examples."""

    module: nn.Module
    inputs: Tensor  # (N, ...)
    gradients: Tensor  # (N, ...)


@dataclass(frozen=True)
class _Inputs:
    """The inputs of a shared weight as its calls saw them, unfolded where that is needed."""

    layer: Layer
    uses: Sequence[_Use]

    @property
    def width(self) -> int:
        return self.layer.shape[1]

    def patches(self) -> Tensor:
        return _joined([self.layer.rule.inputs(use.module, use.inputs) for use in self.uses])

    @property
    def forms_matrices(self) -> bool:
        """Whether `matrices` needs no patches."""
        return len(self.uses) == 1 and self.layer.rule.forms_matrices(self.uses[0].module, self.uses[0].gradients)

    def matrices(self) -> Tensor | None:
        if len(self.uses) > 1:
            return None
        (use,) = self.uses
        return self.layer.rule.matrices(use.module, use.inputs, use.gradients)

    def rows(self, chosen: Tensor) -> "_Inputs":
        some = [_Use(use.module, use.inputs[chosen], use.gradients[chosen]) for use in self.uses]
        return _Inputs(self.layer, some)


def _form(layer: Layer, calls: list[Call], part: slice) -> Gradients:
    """Return the gradients of some examples; several calls of a layer are more positions of its weight."""
    uses = _uses(calls, part)
    inputs, positions = _Inputs(layer, uses), _positions(layer, uses)
    if is_outer(positions):
        return OuterGradients(inputs.patches()[0, :, 0], positions[0, :, 0])
    return SharedGradients(positions, inputs)


def _uses(calls: list[Call], part: slice) -> list[_Use]:
    return [
        _Use(call.module, _widened(call.inputs[part]), _widened(call.gradients[part]))
        for call in calls
        if call.gradients is not None
    ]


def _positions(layer: Layer, uses: Sequence[_Use]) -> Tensor:  # (H, N, S, G / H)
    return _joined([layer.rule.gradients(use.module, use.gradients) for use in uses])


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)  # sums of half precision would lose examples


def _widened(x: Tensor) -> Tensor:
    return x.to(_wide(x.dtype)) if x.is_floating_point() else x  # a rule reads whole numbers itself


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)
