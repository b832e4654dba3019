"""A network whose last layer alone is fitted: the second pass recalls what the layer saw in the first.

A layer is the last one if what is sent back from the outputs arrives at it unchanged. Autograd has then nothing to send
back, since it records a network only from its first tapped layer on, and a second pass needs no network at all: the
layer's inputs and the outputs of the first pass are enough, as far as they fit into a number of bytes.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from infoform.fitting.reading import BatchPart
from infoform.network.batches import batch_size
from infoform.network.capture import Call, Capture, GradientSink
from infoform.network.layer import Layer


@dataclass(frozen=True)
class SeenBatch:
    """What the last layer saw of some examples, and what the network put out for them."""

    module: nn.Module
    inputs: Tensor  # (N, ...)
    outputs: Tensor  # (N, ...)
    gradients: Tensor  # (0, ...): of the shape and type of the gradients of what the layer puts out

    @property
    def nbytes(self) -> int:
        return sum(one.numel() * one.element_size() for one in (self.inputs, self.outputs))

    def rows(self, places: Tensor) -> "SeenBatch":  # (n,)
        """Return some of the examples."""
        chosen = places.to(self.inputs.device)
        return SeenBatch(self.module, self.inputs[chosen], self.outputs[chosen], self.gradients)


@dataclass
class SeenExamples:
    """What was seen of the first examples of a process, as far as it fits into a limit."""

    limit: int  # bytes
    nbytes: int = 0
    ends: list[int] = field(default_factory=list)  # by batch: the number of examples up to its end
    batches: list[SeenBatch] = field(default_factory=list)

    @property
    def count(self) -> int:
        return self.ends[-1] if self.ends else 0

    def add(self, batch: SeenBatch, start: int) -> None:
        """Keep a batch that begins after `start` examples, if all before it are there and it fits."""
        if start != self.count or self.nbytes + batch.nbytes > self.limit:
            self.limit = self.nbytes  # nothing after a gap is kept
            return
        # copies: a loader may write over its memory, and a view holds all of what it is a part of
        own = SeenBatch(batch.module, batch.inputs.clone(), batch.outputs.detach().clone(), batch.gradients)
        self.batches.append(own)
        self.ends.append(start + len(own.outputs))
        self.nbytes += own.nbytes

    def clear(self) -> None:
        """Forget all, and keep nothing from now on."""
        self.limit = self.nbytes = 0
        self.ends, self.batches = [], []

    def size_from(self, start: int) -> int:
        """Return the examples of the batch that begins after so many; 0 where none does."""
        place = bisect_right(self.ends, start)
        if place == len(self.ends):
            return 0
        size = len(self.batches[place].outputs)
        return size if self.ends[place] - size == start else 0

    def at(self, places: Tensor) -> SeenBatch | None:  # (n,), in rising order
        """Return what was seen of the examples at these places, if all of them are there."""
        if len(places) == 0 or int(places[-1]) >= self.count:
            return None
        first, last = (bisect_right(self.ends, int(places[place])) for place in (0, -1))
        parts = []
        for end, batch in zip(self.ends[first : last + 1], self.batches[first : last + 1], strict=True):
            start = end - len(batch.outputs)
            own = places[(places >= start) & (places < end)] - start
            parts.append(batch if len(own) == len(batch.outputs) else batch.rows(own))
        if len(parts) == 1:
            return parts[0]
        inputs, outputs = (torch.cat([getattr(one, name) for one in parts]) for name in ("inputs", "outputs"))
        return SeenBatch(parts[0].module, inputs, outputs, parts[0].gradients)


class RecallingCapture:
    """Stands before a `Capture`, and in its place for examples whose last layer has been seen."""

    def __init__(self, capture: Capture, layers: Mapping[str, Layer], *, limit: int) -> None:
        """Keep up to `limit` bytes of what the layer saw, where there is one layer."""
        self._capture, self._layers = capture, layers
        self._seen = SeenExamples(limit if len(layers) == 1 else 0)
        self._recalled: SeenBatch | None = None  # the present part of a batch, if it was seen before
        self._start: int | None = None  # examples before the present batch, if it may be kept
        self._outputs: Tensor | None = None  # of that batch, before a likelihood has looked at them

    @property
    def calls(self) -> dict[str, list[Call]]:
        return self._capture.calls

    @property
    def network(self) -> Capture:
        return self._capture

    @property
    def nbytes(self) -> int:
        return self._capture.nbytes

    def forward(self, part: BatchPart) -> Tensor:
        """Return the outputs for a part of a batch, ready for `backward`."""
        self._recalled = self._seen.at(part.positions(self._size(part))) if self._seen.count else None
        if self._recalled is None:
            self._start = part.start if part.rows is None and self._seen.limit > 0 else None
            self._outputs = self._capture.forward(part.batch)
            return self._outputs
        (name,), seen = self._layers, self._recalled
        self.calls.clear()
        self.calls[name] = [Call(seen.module, seen.inputs, seen.inputs._version)]
        return seen.outputs

    def _size(self, part: BatchPart) -> int:
        """Return the number of examples of a part; of a whole batch that which its outputs had, if it was seen."""
        if part.rows is not None:
            return len(part.rows)
        return self._seen.size_from(part.start) or batch_size(part.batch)

    def forget(self) -> None:
        """Give the memory of the last forward pass free, which nothing is sent back through."""
        self._outputs = self._recalled = None
        self.calls.clear()

    def backward(self, outputs: Tensor, vector: Tensor, sink: GradientSink, *, last: bool = True) -> None:
        """Send `vector` back to the layers, as `Capture.backward` does."""
        seen = self._recalled
        if seen is not None:
            (name,) = self._layers
            gradients = vector.to(seen.gradients.dtype).reshape(-1, *seen.gradients.shape[1:])
            sink(name, [Call(seen.module, seen.inputs, seen.inputs._version, gradients)])
            if last:
                self.calls.clear()
            return
        if self._start is None:
            self._capture.backward(outputs, vector, sink, last=last)
            return
        arrived: list[Call] = []

        def noting(name: str, calls: list[Call]) -> None:
            arrived.extend(calls)
            sink(name, calls)

        self._capture.backward(outputs, vector, noting, last=last)
        self._note(arrived, vector, last=last)

    def _note(self, calls: list[Call], vector: Tensor, *, last: bool) -> None:
        """Keep what the layer saw of a batch if every vector has arrived there unchanged."""
        assert self._start is not None
        assert self._outputs is not None
        gradients = calls[0].gradients if len(calls) == 1 else None
        same = (
            gradients is not None
            and gradients.numel() == vector.numel()
            and (vector.dim() < 3 or gradients.shape == vector.shape)  # positions are in the same order
            and torch.equal(gradients.reshape(vector.shape), vector.to(gradients.dtype))
        )
        if gradients is None or not same:
            self._seen.clear()
            self._start = None
        elif last:
            self._seen.add(SeenBatch(calls[0].module, calls[0].inputs, self._outputs, gradients[:0]), self._start)
