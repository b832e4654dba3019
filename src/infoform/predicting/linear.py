"""The network made linear in its weights: mean and covariance of its outputs, in closed form.

    f(x) ~ N(f*, J Σ Jᵀ)

J Σ Jᵀ is summed over layers, from each layer's inputs and output gradients (layer_covariances.py). Threads share the
examples, each with a copy of the modules: most operations of a small layer are too short to be shared.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from threading import Lock
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from infoform.common.threads import side_by_side
from infoform.layers.base import is_outer
from infoform.network.batches import Batch, batch_size, cut_batch, is_divisible
from infoform.network.capture import Call, Capture, capturing
from infoform.network.layer import Layer
from infoform.network.many_outputs import gradient_of, gradients_at_once, one_vector_each
from infoform.network.memory_layout import channels_last_pays
from infoform.posteriors.network_posterior import Posterior
from infoform.predicting.checks import BatchCheck
from infoform.predicting.layer_covariances import LayerCall, LayerGradients, add_covariances, keeps_outputs_innermost

if TYPE_CHECKING:
    from infoform.predicting.predictor import Predictor

CHUNK_BYTES = 16 * 2**20  # of output gradients, and of what is made of one layer's, held at a time
MOST_CHUNKS = 36  # that the output gradients of a large batch may take: more are no faster
FIRST = 2  # examples of a first forward pass, which tells how many fit
SMALL_WORK = 2**22  # numbers that a network puts out for all examples, below which threads are not worth their start

Memory = dict[tuple[str, int], Tensor]  # of the gradients at each call of a layer, for the next examples


def gaussian_outputs(
    predictor: "Predictor", batch: Batch, posteriors: Sequence[Posterior]
) -> tuple[Tensor, Tensor]:  # -> (N, *P, C), (V, R, C, C)
    """Return mean and covariances of the outputs of the network made linear in its weights.

    Gradients, and Jacobians where they are formed, are found once for all posteriors.

    Args:
        predictor: the model and its layers; its own posterior is not used.
        batch: inputs of N examples.
        posteriors: V posteriors of the same layers.

    Returns:
        The mean (N, C) or (N, *P, C), and a covariance of the outputs of every example, or of every position of it,
        under each posterior, (V, N, C, C) or (V, R, C, C).
    """
    examples = batch_size(batch)
    check = predictor.checks.of(predictor, _layers_of(predictor, posteriors), batch)
    with _linearised(predictor, posteriors, check) as network:
        whole = not (check.divisible and is_divisible(batch))  # then the outputs tell whether targets are missing
        if examples == 1 or whole or check.at_once or (examples <= FIRST and not check.alone):
            mean, covariance = network.outputs(batch)
            return mean, covariance
        first = cut_batch(batch, slice(0, 1 if check.alone else FIRST))
        outputs = network.first_outputs(first)
        threads, most = network.division(outputs, examples)
        channels_last = network.gains_from_channels_last(outputs)
        network.prepare()
    if channels_last:
        with _linearised(predictor, posteriors, check, channels_last=True) as network:
            channels_last = network.has_outputs(first, outputs)
    parts = _Parts(batch, _even_slices(examples, 1 if check.alone else most, threads))

    def work(own: "Predictor") -> dict[int, tuple[Tensor, Tensor]]:
        with _linearised(own, posteriors, check, channels_last=channels_last) as network:
            return network.work_off(parts)

    def work_privately(_: int) -> dict[int, tuple[Tensor, Tensor]]:
        with predictor.private() as own:
            return work(own)

    found: dict[int, tuple[Tensor, Tensor]] = {}
    if threads == 1 or not predictor.can_be_copied:
        found = work(predictor)
    else:
        for one in side_by_side(work_privately, range(min(threads, len(parts)))):
            found.update(one)
    means, covariances = zip(*(found[number] for number in sorted(found)), strict=True)
    return torch.cat(means), torch.cat(covariances, dim=1)


def _even_slices(examples: int, most: int, threads: int) -> list[slice]:
    """Cut examples into slices of about equal size, at most so many each, and as many slices for every thread."""
    count = min(examples, threads * -(-examples // (most * threads)))
    bounds = [number * examples // count for number in range(count + 1)]
    return [slice(start, stop) for start, stop in pairwise(bounds)]


class _Parts:
    """The examples of a batch, some at a time, for the thread that asks next."""

    def __init__(self, batch: Batch, slices: list[slice]) -> None:
        self._batch, self._slices = batch, slices
        self._given, self._lock = 0, Lock()

    def __len__(self) -> int:
        return len(self._slices)

    def __iter__(self) -> Iterator[tuple[int, Batch]]:
        while True:
            with self._lock:
                number, self._given = self._given, self._given + 1
            if number >= len(self._slices):
                return
            yield number, cut_batch(self._batch, self._slices[number])


@dataclass
class _LinearisedNetwork:
    """A network with its layers tapped, and posteriors of their weights; used by one thread."""

    predictor: "Predictor"
    posteriors: Sequence[Posterior]
    capture: Capture
    at_once: bool = False  # whether all outputs are sent back together
    memory: Memory = field(default_factory=dict)

    def first_outputs(self, first: Batch) -> Tensor:  # -> (N, C)
        """Return the outputs of the first examples."""
        outputs = self.predictor.likelihood.arrange_outputs(self.capture.forward(first))
        return outputs.detach()

    def gains_from_channels_last(self, outputs: Tensor) -> bool:
        """Tell, after a forward pass with these outputs, whether another layout of images should be faster."""
        work = {
            call.module: call.put_out * self.predictor.layers[name].shape[1]
            for name, calls in self.capture.calls.items()
            for call in calls
        }
        return channels_last_pays(work, outputs.device, outputs.dtype)

    def has_outputs(self, first: Batch, expected: Tensor) -> bool:  # (N, C)
        """Tell whether the network gives these outputs for the first examples, up to rounding."""
        try:
            outputs = self.capture.forward(first).detach()
        except RuntimeError:  # where its code asks for the usual layout, as `view` does
            return False
        size = float(expected.abs().max())
        return outputs.shape == expected.shape and torch.allclose(outputs, expected, rtol=1e-3, atol=1e-3 * size)

    def division(self, outputs: Tensor, examples: int) -> tuple[int, int]:  # (N, C)
        """Return how many threads share so many examples, and how many of these each takes at most at a time.

        Of C outputs the gradients of 2 C-ths of the batch take about the memory of one plain backward pass; all
        threads together take 3 C-ths.
        """
        count, put_out = outputs.shape[-1], sum(self.capture.output_bytes) // len(outputs)
        each = max(1, put_out * count)
        threads = torch.get_num_threads() if outputs.device.type == "cpu" else 1
        if put_out * count * examples // outputs.dtype.itemsize < SMALL_WORK:
            threads = 1
        parts = 2 if threads == 1 else 3  # small parts of several threads would be slow
        share = min(parts * examples // (count * threads), MOST_CHUNKS * CHUNK_BYTES // each // threads)
        return threads, max(1, CHUNK_BYTES // each // threads, share)

    def prepare(self) -> None:
        """Compute what all threads share; after a forward pass, which tells the layers that use their weight once."""
        for name, calls in self.capture.calls.items():
            rule, call = self.predictor.layers[name].rule, calls[0]
            if rule.sparse:
                continue
            outer = len(calls) == 1 and not rule.forms and is_outer(rule.inputs(call.module, call.inputs[:1]))
            for posterior in self.posteriors:
                posterior.layers[name].prepare(outer=outer)

    def work_off(self, parts: _Parts) -> dict[int, tuple[Tensor, Tensor]]:  # -> (n, C), (V, n, C, C) each
        """Return the outputs of the parts that no other thread has taken, by their numbers."""
        return {number: self.outputs(part) for number, part in parts}

    def outputs(self, batch: Batch) -> tuple[Tensor, Tensor]:  # -> (N, *P, C), (V, R, C, C)
        """Return mean and covariances of the outputs for some examples."""
        with torch.enable_grad():  # also where a user's code forbids gradients
            outputs = self.predictor.likelihood.arrange_outputs(self.capture.forward(batch))
            rows = outputs.reshape(len(outputs), -1, outputs.shape[-1])  # (N, P, C)
        self._check_odd()
        examples, places, count = rows.shape
        layers = self.predictor.layers
        covariances = []
        for place in range(places):  # the covariance of a position with another is never formed
            covariance = outputs.new_zeros(len(self.posteriors), examples, count, count, requires_grad=False)
            collected = self._collect(rows, place)
            self._check_odd()  # a backward pass may find more
            found = [
                LayerGradients(layers[name], calls, [one.layers[name] for one in self.posteriors])
                for name, calls in collected.items()
            ]
            add_covariances(found, covariance, chunk=CHUNK_BYTES)
            covariances.append(covariance)
        every = covariances[0] if places == 1 else torch.stack(covariances, dim=2).flatten(1, 2)
        return outputs.detach(), every

    def _collect(self, rows: Tensor, place: int) -> dict[str, list[LayerCall]]:  # (N, P, C)
        """Return what comes back for every output of a position, by layer."""
        if not self.at_once:
            return _collect(self.capture, rows, place, self.predictor.layers, self.memory)
        answers = gradients_at_once(self.capture, rows, one_vector_each(rows, place))
        return {name: [LayerCall(call, gradient_of(call)) for call in calls] for name, calls in answers.items()}

    def _check_odd(self) -> None:
        for name, reason in self.capture.odd.items():
            raise ValueError(
                f"layer '{name}' does not keep the examples of this batch apart: {reason}; predict one example at a "
                "time, or with kind='linear-mc'."
            )


@contextmanager
def _linearised(
    predictor: "Predictor", posteriors: Sequence[Posterior], check: BatchCheck, *, channels_last: bool = False
) -> Iterator[_LinearisedNetwork]:
    every = _layers_of(predictor, posteriors)
    layers = {name: layer for name, layer in every.items() if name not in check.fixed}
    made = capturing(predictor.model, layers, axes=check.axes, channels_last=channels_last, many_backward_passes=True)
    with made as capture:
        yield _LinearisedNetwork(predictor, posteriors, capture, at_once=check.at_once)


def _layers_of(predictor: "Predictor", posteriors: Sequence[Posterior]) -> dict[str, Layer]:
    return {name: predictor.layers[name] for name in posteriors[0].layers}


def _collect(
    capture: Capture, outputs: Tensor, place: int, layers: Mapping[str, Layer], memory: Memory
) -> dict[str, list[LayerCall]]:
    """Send every output (N, P, C) of a position back in turn; return what came back, by layer."""
    used: dict[str, dict[int, LayerCall]] = {}
    missing: dict[int, set[int]] = {}  # outputs that do not depend on a call
    _, places, count = outputs.shape
    for index in range(count):
        vector = torch.zeros_like(outputs)
        vector[:, place, index] = 1

        def sink(name: str, calls: list[Call], index: int = index) -> None:
            of_layer = used.setdefault(name, {})
            for call in calls:
                key, gradient = id(call.inputs), call.gradients
                assert gradient is not None
                if key not in of_layer:
                    held = _held(
                        memory, (name, len(of_layer)), gradient, count, keeps_outputs_innermost(layers[name], gradient)
                    )
                    of_layer[key], missing[key] = LayerCall(call, held), set(range(count))
                of_layer[key].gradients[:, index] = gradient
                missing[key].discard(index)

        capture.backward(outputs, vector, sink, last=(place, index) == (places - 1, count - 1))
    for calls in used.values():
        for key, call in calls.items():
            for index in missing[key]:
                call.gradients[:, index] = 0
    return {name: list(calls.values()) for name, calls in used.items()}


def _held(
    memory: Memory, key: tuple[str, int], gradient: Tensor, count: int, innermost: bool
) -> Tensor:  # (N, ...) -> (N, C, ...)
    """Return memory for the gradients of all outputs: that of the examples before, if it fits."""
    shape = (len(gradient), count, *gradient.shape[1:])
    old = memory.get(key)
    if old is None or old.shape[1:] != shape[1:] or len(old) < shape[0] or old.dtype != gradient.dtype:
        if innermost:  # (N, height, width, C, G)
            old = gradient.new_empty(shape[0], *shape[3:], *shape[1:3]).movedim((-2, -1), (1, 2))
        else:
            old = gradient.new_empty(shape)
        memory[key] = old
    return old[: shape[0]]
