"""What one layer adds to the covariance of the outputs, J Σ Jᵀ, from its inputs and the gradients of its outputs.

A layer that uses its weight once an example has Jacobians g aᵀ, which are not formed. All others' are formed for as
many examples at a time as a processor's cache holds, and every posterior reads them there. Threads share the examples.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from infoform.common.matmul import rows_times
from infoform.common.threads import side_by_side
from infoform.layers.base import is_outer
from infoform.layers.embedding import sum_rows
from infoform.network.capture import Call
from infoform.network.layer import Layer
from infoform.posteriors import LayerPosterior

IN_CACHE = 4  # what is formed at a time in the cache is this part of what may be held in memory
UNFOLDED = 2**22  # bytes of inputs as the layer's rule has them, made at a time
SMALLER = 8  # what is kept of a Jacobian, where not all of it is, is at most about this part of it, or
A_ROW = 48  # numbers for each of its rows
MANY_POSITIONS = 2  # times the layer's inputs: from so many positions on Jacobians are less to turn than gradients


@dataclass(frozen=True)
class LayerCall:
    """One call of a layer, with the gradients of every output in what came out of it."""

    call: Call
    gradients: Tensor  # (N, C, ...)

    def inputs(self, layer: Layer, part: slice) -> Tensor:  # -> (H, n, S, A)
        """Return the inputs as the layer's rule has them."""
        return layer.rule.inputs(self.call.module, self.call.inputs[part])

    def by_output(self, layer: Layer, part: slice) -> Tensor:  # -> (H, n, C, S, G / H)
        """Return the gradients as the layer's rule has them, with outputs on an axis of their own."""
        gradients = self.gradients[part]
        as_rows = layer.rule.gradients(self.call.module, gradients.flatten(0, 1))
        by_output: Tensor = as_rows.unflatten(1, gradients.shape[:2])
        return by_output


@dataclass(frozen=True)
class LayerGradients:
    """All calls of one layer for N examples, and V posteriors of its weights."""

    layer: Layer
    calls: list[LayerCall]
    posteriors: Sequence[LayerPosterior]

    def is_outer(self) -> bool:
        """Whether the layer uses its weight once an example."""
        if self.layer.rule.sparse or self.layer.rule.forms:
            return False
        return len(self.calls) == 1 and is_outer(self.calls[0].inputs(self.layer, slice(0, 1)))

    def outer(self, chunk: int) -> Iterator[tuple[slice, Tensor]]:  # -> (V, n, C, C) each
        """Give the covariances of some examples after the other, of a layer that is outer; `chunk` bytes at a time."""
        call, posterior = self.calls[0], self.posteriors[0]  # all have the same sizes
        count, (num_outputs, num_inputs) = call.gradients.shape[1], self.layer.shape
        each = num_inputs + 2 * count * num_outputs + posterior.width * (num_inputs + num_outputs)
        for part in _parts(len(call.gradients), each * posterior.dtype.itemsize, chunk):
            rows = call.inputs(self.layer, part).to(posterior.dtype)[0, :, 0]  # (n, A)
            outputs = call.by_output(self.layer, part).to(posterior.dtype)[0, :, :, 0]  # (n, C, G)
            yield part, torch.stack([one.outer_covariance(rows, outputs) for one in self.posteriors])

    def blocks(self, chunk: int) -> tuple[list["_Block"], bool]:
        """Cut the examples of a layer that is not outer into parts, and say whether these fit into a cache."""
        gradients, item = self.calls[0].gradients, self.posteriors[0].dtype.itemsize
        jacobian = gradients.shape[1] * self.layer.shape[0] * self.layer.shape[1] * item
        holds = any(one.keeps_jacobians for one in self.posteriors)
        kept = max(jacobian // SMALLER, gradients.shape[1] * self.layer.shape[0] * A_ROW * item)
        parts = _parts(len(gradients), jacobian if holds else kept, chunk // IN_CACHE)
        return [_Block(self, part) for part in parts], 4 * jacobian <= chunk

    def of_rows(self) -> Iterator[tuple[slice, Tensor]]:  # -> (V, 1, C, C) each
        """Give the covariances of one example after the other, of a layer that is a table."""
        rule, dtype, height = self.layer.rule, self.posteriors[0].dtype, self.layer.shape[0]
        for number in range(len(self.calls[0].gradients)):
            part = slice(number, number + 1)
            indices, values = [], []
            for one in self.calls:
                module, x, gradients = one.call.module, one.call.inputs[part], one.gradients[number]
                indices.append(rule.row_indices(module, x).expand(len(gradients), -1))
                values.append(rule.row_gradients(module, x.expand(len(gradients), *x.shape[1:]), gradients))
            _, rows, sums = sum_rows(torch.cat(indices, 1), torch.cat(values, 1).to(dtype), height=height)
            count = len(self.calls[0].gradients[number])
            jacobian = sums.unflatten(0, (count, -1))  # (C, R, A): all outputs have the same rows
            rows = rows[: jacobian.shape[1]]
            weighted = [jacobian * one.row_variances(rows) for one in self.posteriors]
            yield part, torch.stack([one.flatten(1) @ jacobian.flatten(1).mT for one in weighted]).unsqueeze(1)

    def jacobians(self, part: slice) -> Iterator[Tensor]:  # -> (C, G, A) each
        """Give the gradients of every output in the layer's weights, example by example."""
        forms = self.layer.rule.forms  # the rule knows no other way than to hold whole gradients
        examples = part.stop - part.start
        for piece in _parts(examples, self._held_for_one() if examples > 1 else 0, UNFOLDED):
            chosen = slice(part.start + piece.start, part.start + piece.stop)
            yield from self._formed(chosen) if forms else self._multiplied(chosen)

    def _held_for_one(self) -> int:
        """Return the bytes of what is held of an example while its Jacobians are formed."""
        gradients, first = self.calls[0].gradients, slice(0, 1)
        if not self.layer.rule.forms:
            inputs = [one.inputs(self.layer, first) for one in self.calls]
            if self._one_by_one(inputs[0]):
                return max(sum(one.nbytes for one in inputs), sum(one.gradients[first].nbytes for one in self.calls))
        return gradients.shape[1] * self.layer.shape[0] * self.layer.shape[1] * self.posteriors[0].dtype.itemsize

    def _one_by_one(self, inputs: Tensor) -> bool:  # (H, ...)
        """Whether the Jacobians of one example are formed after those of another."""
        return len(inputs) == 1 and inputs.device.type == "cpu" and self.posteriors[0].dtype == torch.float32

    def _multiplied(self, part: slice) -> Iterator[Tensor]:  # -> (C, G, A) each
        dtype = self.posteriors[0].dtype
        if dtype == torch.float32 and len(self.calls) == 1 and _outputs_are_innermost(self.calls[0].gradients):
            yield from self._turned(part)
            return
        inputs = _joined([one.inputs(self.layer, part) for one in self.calls], 2).to(dtype)  # (H, n, S, A)
        outputs = _joined([one.by_output(self.layer, part) for one in self.calls], 3).to(dtype)  # (H, n, C, S, G / H)
        groups, examples, count, positions, rows = outputs.shape
        left = outputs.mT.reshape(groups * examples, count * rows, positions)
        right = inputs.flatten(0, 1)  # (H n, S, A)
        if self._one_by_one(inputs):
            for one, other in zip(left, right, strict=True):
                yield rows_times(one, other.mT).view(count, rows, -1)
            return
        by_group = (left @ right).view(groups, examples, count, rows, -1)
        yield from by_group.permute(1, 2, 0, 3, 4).reshape(examples, count, groups * rows, -1)

    def _turned(self, part: slice) -> Iterator[Tensor]:  # -> (C, G, A) each
        """Multiply gradients as they lie, outputs innermost, and turn the Jacobians, which are smaller."""
        (call,) = self.calls
        (inputs,) = call.inputs(self.layer, part)  # (n, S, A)
        for number, one in enumerate(inputs, part.start):
            (gradients,) = call.by_output(self.layer, slice(number, number + 1))[0]  # (C, S, G)
            by_position = gradients.transpose(0, 1).flatten(1)  # (S, C * G)
            yield rows_times(one.mT, by_position.T).T.contiguous().unflatten(0, gradients.shape[::2])

    def _formed(self, part: slice) -> Tensor:  # (n, C, G, A)
        """Return the same where the rule knows no other way, the sum over all calls."""
        total: Tensor | None = None
        for one in self.calls:
            gradients = one.gradients[part]
            inputs = one.call.inputs[part].repeat_interleave(gradients.shape[1], 0)
            formed = self.layer.rule.matrices(one.call.module, inputs, gradients.flatten(0, 1))
            assert formed is not None
            formed = formed.to(self.posteriors[0].dtype).unflatten(0, gradients.shape[:2])
            total = formed if total is None else total + formed
        assert total is not None
        return total


@dataclass(frozen=True)
class _Block:
    """Some examples of a layer."""

    of: LayerGradients
    part: slice

    def covariances(self) -> Tensor:  # (V, n, C, C)
        every = [one.jacobian_sums() for one in self.of.posteriors]
        for jacobians in self.of.jacobians(self.part):
            for sums in every:
                sums.add(jacobians)
        return torch.stack([sums.covariance() for sums in every])


def add_covariances(layers: Sequence[LayerGradients], total: Tensor, *, chunk: int) -> None:  # (V, N, C, C)
    """Add to `total` what these layers have; with about `chunk` bytes in memory besides inputs and gradients."""
    small: list[list[_Block]] = []
    for layer in layers:
        if layer.layer.rule.sparse:
            for part, covariances in layer.of_rows():
                total[:, part] += covariances
            continue
        if layer.is_outer():
            for part, covariances in layer.outer(chunk):
                total[:, part] += covariances
            continue
        blocks, fit = layer.blocks(chunk)
        if fit and total.device.type == "cpu" and torch.get_num_threads() > 1:
            for posterior in layer.posteriors:
                posterior.prepare()
            small.append(blocks)
            continue
        for block in blocks:
            total[:, block.part] += block.covariances()
    ordered = [block for blocks in small for block in blocks]
    if ordered:
        for block, covariances in zip(ordered, side_by_side(_Block.covariances, ordered), strict=True):
            total[:, block.part] += covariances


def keeps_outputs_innermost(layer: Layer, gradient: Tensor) -> bool:  # (N, G, height, width)
    """Whether the gradients of all outputs are best held as (N, height, width, C, G), where each arrives channels last.

    Elsewhere each is turned, so that products run along positions. With many positions it is less work to turn what
    the product gives.
    """
    if gradient.dim() != 4 or gradient.is_contiguous() or getattr(layer.module, "groups", 1) > 1:
        return False
    channels_last = gradient.is_contiguous(memory_format=torch.channels_last)
    return channels_last and gradient.shape[2:].numel() > MANY_POSITIONS * layer.shape[1]


def _outputs_are_innermost(gradients: Tensor) -> bool:  # (N, C, G, height, width)
    return gradients.dim() == 5 and not gradients.is_contiguous() and gradients.movedim((1, 2), (3, 4)).is_contiguous()


def _parts(examples: int, each: int, chunk: int) -> list[slice]:
    """Cut examples of `each` bytes into parts of at most `chunk` bytes and of about equal size."""
    count = min(examples, -(-examples * each // max(1, chunk)))
    step = -(-examples // max(1, count))
    return [slice(start, min(start + step, examples)) for start in range(0, examples, step)]


def _joined(parts: list[Tensor], dim: int) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)
