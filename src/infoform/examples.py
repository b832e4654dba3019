"""From a layer's calls in one backward pass to the gradients of its examples, some at a time."""

from functools import partial

import torch
from torch import Tensor

from infoform.capture import Call
from infoform.coverage import Layer
from infoform.gradients import Gradients, OuterGradients, SharedGradients, is_outer

CHUNK_BYTES = 4 * 2**20  # of patches and per-example gradients held at a time: what a processor's cache holds


class Held:
    """Rank-one gradients of several batches, kept until there are enough of them for products at full speed."""

    def __init__(self, gradients: OuterGradients, capacity: int) -> None:
        self._inputs = gradients.inputs.new_empty(capacity, gradients.inputs.shape[1])
        self._outputs = gradients.outputs.new_empty(capacity, gradients.outputs.shape[1])
        self._count = 0
        self.start = 0  # number of the first example

    def takes(self, gradients: OuterGradients, index: int) -> bool:
        """Whether these examples follow those that are here, and there is room for them."""
        count = len(gradients.inputs)
        fits = self._count + count <= len(self._inputs) and gradients.inputs.dtype == self._inputs.dtype
        return fits and index == self.start + self._count

    def add(self, gradients: OuterGradients, index: int) -> None:
        if self._count == 0:
            self.start = index
        end = self._count + len(gradients.inputs)
        self._inputs[self._count : end] = gradients.inputs
        self._outputs[self._count : end] = gradients.outputs
        self._count = end

    def release(self) -> OuterGradients | None:
        """Return what is here, and forget it; to be used before anything else is added."""
        count, self._count = self._count, 0
        return OuterGradients(self._inputs[:count], self._outputs[:count]) if count else None


def chunk_length(layer: Layer, calls: list[Call], *, limit: int = CHUNK_BYTES) -> int:
    """Return how many examples to take at a time, so that patches and gradients stay within `limit` bytes."""
    positions = _positions(layer, calls, slice(0, 1))
    groups, _, count, _ = positions.shape
    outputs, inputs = layer.shape
    if is_outer(positions):
        size = inputs + outputs
    else:
        size = outputs * inputs + (0 if _direct(layer, calls, count) else groups * count * inputs)
    return max(1, limit // (size * positions.element_size()))


def form_gradients(layer: Layer, calls: list[Call], part: slice) -> Gradients:
    """Return the gradients of some examples; several calls of a layer are more positions of its weight."""
    positions = _positions(layer, calls, part)
    if is_outer(positions):
        return OuterGradients(_patches(layer, calls, part)[0, :, 0], positions[0, :, 0])
    direct = _direct(layer, calls, positions.shape[2])
    form = partial(_weight_gradients, layer, calls, part) if direct else None
    return SharedGradients(positions, partial(_patches, layer, calls, part), form)


def _direct(layer: Layer, calls: list[Call], count: int) -> bool:
    return len(calls) == 1 and layer.rule.forms_gradients(calls[0].module, count)


def _weight_gradients(layer: Layer, calls: list[Call], part: slice) -> Tensor:  # (N, G, A)
    (call,) = calls
    return layer.rule.weight_gradients(call.module, _wide(call.inputs[part]), _wide(_gradients(call)[part]))


def _positions(layer: Layer, calls: list[Call], part: slice) -> Tensor:  # (H, N, S, G / H)
    return _joined([layer.rule.gradients(call.module, _wide(_gradients(call)[part])) for call in calls])


def _patches(layer: Layer, calls: list[Call], part: slice) -> Tensor:  # (H, N, S, A)
    return _joined([layer.rule.inputs(call.module, _wide(call.inputs[part])) for call in calls])


def _gradients(call: Call) -> Tensor:
    assert call.gradients is not None
    return call.gradients


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))  # sums of half precision would lose examples


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)
