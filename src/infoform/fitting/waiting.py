"""Rank-one gradients that wait for those of later batches, until there are enough for products at full speed."""

from collections.abc import Mapping

import torch
from torch import Tensor

from infoform.common.matmul import aligned
from infoform.fitting.layer_gradients import wide_dtype
from infoform.fitting.per_example_gradients import OuterGradients
from infoform.fitting.reading import BatchExamples
from infoform.network.capture import Call
from infoform.network.layer import Layer


class WaitingGradients:
    """Rank-one gradients g aᵀ of up to `capacity` examples, as rows of two matrices."""

    def __init__(self, layer: Layer, like: Tensor, capacity: int) -> None:
        outputs, inputs = layer.shape
        wide = like.new_empty(0, dtype=wide_dtype(like.dtype))
        self._layer, self._dtype = layer, like.dtype
        self._inputs = aligned(wide, capacity, inputs)
        self._outputs = aligned(wide, capacity, outputs)
        self._numbers = torch.empty(capacity, dtype=torch.int64)
        self._selected = torch.empty(capacity, dtype=torch.bool)
        self.count = 0

    @property
    def full(self) -> bool:
        return self.count == len(self._inputs)

    def fits(self, call: Call) -> bool:
        """Whether the inputs of a call have the type and the device of those that wait."""
        return call.dtype == self._dtype and call.inputs.device == self._inputs.device

    def write(self, call: Call, examples: BatchExamples, start: int) -> int:
        """Write the examples of a call from `start` on, as many as there is room for, and return how many."""
        assert call.gradients is not None
        size: int = min(len(call.inputs) - start, len(self._inputs) - self.count)
        room, part = slice(self.count, self.count + size), slice(start, start + size)
        self._layer.rule.write_rows(call.module, call.inputs[part], self._inputs[room])
        self._outputs[room] = self._layer.rule.gradients(call.module, call.gradients[part])[0, :, 0]
        self._numbers[room] = examples.numbers[part]
        self._selected[room] = True if examples.selected is None else examples.selected[part]
        self.count += size
        return size

    def take(self, *, added_now: bool) -> tuple[OuterGradients, BatchExamples]:
        """Return what waits, and forget it; to be used before anything else is written.

        Args:
            added_now: Whether the sums that one of two passes adds to take these examples.
        """
        rows, self.count = slice(0, self.count), 0
        selected = self._selected[rows]
        examples = BatchExamples(self._numbers[rows], selected, torch.full_like(selected, added_now))
        return OuterGradients(self._inputs[rows], self._outputs[rows]), examples

    def state(self) -> dict[str, Tensor]:
        """Return what waits, so that another object can go on from here."""
        rows = slice(0, self.count)
        return {
            "inputs": self._inputs[rows],
            "outputs": self._outputs[rows],
            "selected": self._selected[rows],
            "numbers": self._numbers[rows],
            "capacity": torch.tensor([len(self._inputs)]),
            "like": self._inputs.new_empty(0, dtype=self._dtype),
        }

    @classmethod
    def restored(cls, layer: Layer, state: Mapping[str, Tensor]) -> "WaitingGradients":
        """Return an object in which the same waits as in that of `state`."""
        waiting = cls(layer, state["like"], int(state["capacity"]))
        waiting.count = len(state["inputs"])
        for name in ("inputs", "outputs", "selected", "numbers"):
            getattr(waiting, f"_{name}")[: waiting.count] = state[name]
        return waiting
