"""The network made linear in its weights: mean and covariance of its outputs, in closed form.

    f(x) ~ N(f*, J Σ Jᵀ)

J Σ Jᵀ is summed over layers, from each layer's inputs and output gradients (layer_covariances.py).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from infoform.network.batches import Batch, batch_size, cut_batch
from infoform.network.capture import Call, Capture, capturing
from infoform.posteriors.network_posterior import Posterior
from infoform.predicting.layer_covariances import LayerCall, LayerGradients, add_covariances

if TYPE_CHECKING:
    from infoform.predicting.predictor import Predictor

CHUNK_BYTES = 16 * 2**20  # of output gradients, and of what is made of one layer's, held at a time
MOST_CHUNKS = 10  # that the output gradients of a large batch may take: more are no faster
FIRST = 10  # examples of a first forward pass, which tells how many fit

Memory = dict[tuple[str, int], Tensor]  # of the gradients at each call of a layer, for the next examples


def gaussian_outputs(
    predictor: "Predictor", batch: Batch, posteriors: Sequence[Posterior]
) -> tuple[Tensor, Tensor]:  # -> (N, C), (V, N, C, C)
    """Return mean and covariances of the outputs of the network made linear in its weights.

    Gradients, and Jacobians where they are formed, are found once for all posteriors.

    Args:
        predictor: the model and its layers; its own posterior is not used.
        batch: inputs of N examples.
        posteriors: V posteriors of the same layers.

    Returns:
        The mean (N, C), and a covariance of every example's outputs under each posterior (V, N, C, C).
    """
    layers, examples = predictor.layers, batch_size(batch)
    means, covariances = [], []
    memory: Memory = {}
    start, step = 0, min(FIRST, examples)
    with capturing(predictor.model, {name: layers[name] for name in posteriors[0].layers}) as capture:
        while start < examples:
            part = slice(start, min(start + step, examples))
            outputs = predictor.likelihood.check_outputs(capture.forward(cut_batch(batch, part)))
            most = _examples_at_once(capture, outputs, examples)
            if len(outputs) > most:
                step = most
                continue
            covariance = outputs.new_zeros(len(posteriors), *outputs.shape, outputs.shape[1], requires_grad=False)
            found = [
                LayerGradients(layers[name], calls, [one.layers[name] for one in posteriors])
                for name, calls in _collect(capture, outputs, memory).items()
            ]
            add_covariances(found, covariance, chunk=CHUNK_BYTES)
            means.append(outputs.detach())
            covariances.append(covariance)
            start, step = part.stop, most
    return torch.cat(means), torch.cat(covariances, dim=1)


def _examples_at_once(capture: Capture, outputs: Tensor, examples: int) -> int:
    """Return how many examples' output gradients to hold, seen from a forward pass over some.

    Of C outputs the gradients of 2 C-ths of the batch take about the memory of one plain backward pass.
    """
    each = max(1, sum(capture.output_bytes) * outputs.shape[1] // len(outputs))
    share = min(2 * examples // outputs.shape[1], MOST_CHUNKS * CHUNK_BYTES // each)
    return max(1, CHUNK_BYTES // each, share)


def _collect(capture: Capture, outputs: Tensor, memory: Memory) -> dict[str, list[LayerCall]]:
    """Send every output back in turn; return what came back, by layer."""
    used: dict[str, dict[int, LayerCall]] = {}
    missing: dict[int, set[int]] = {}  # outputs that do not depend on a call
    count = outputs.shape[1]
    for index in range(count):
        vector = torch.zeros_like(outputs)
        vector[:, index] = 1

        def sink(name: str, calls: list[Call], index: int = index) -> None:
            of_layer = used.setdefault(name, {})
            for call in calls:
                key, gradient = id(call.inputs), call.gradients
                assert gradient is not None
                if key not in of_layer:
                    held = _held(memory, (name, len(of_layer)), gradient, count)
                    of_layer[key], missing[key] = LayerCall(call, held), set(range(count))
                of_layer[key].gradients[:, index] = gradient
                missing[key].discard(index)

        capture.backward(outputs, vector, sink, last=index == count - 1)
    for calls in used.values():
        for key, call in calls.items():
            for index in missing[key]:
                call.gradients[:, index] = 0
    return {name: list(calls.values()) for name, calls in used.items()}


def _held(memory: Memory, key: tuple[str, int], gradient: Tensor, count: int) -> Tensor:  # (N, ...) -> (N, C, ...)
    """Return memory for the gradients of all outputs: that of the examples before, if it fits."""
    shape = (len(gradient), count, *gradient.shape[1:])
    old = memory.get(key)
    if old is None or old.shape[1:] != shape[1:] or len(old) < shape[0] or old.dtype != gradient.dtype:
        old = memory[key] = gradient.new_empty(shape)
    return old[: shape[0]]
