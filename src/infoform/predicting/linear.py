"""The network made linear in its weights: mean and covariance of its outputs, in closed form.

    f(x) ~ N(f*, J Σ Jᵀ)

J Σ Jᵀ is summed over layers, from each layer's inputs and output gradients. J is formed nowhere but for a convolution's
own weights, a few examples at a time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from infoform.layers.base import is_outer
from infoform.likelihoods import Likelihood
from infoform.network.batches import Batch, batch_size, split_batch
from infoform.network.capture import Call, Capture, capturing
from infoform.network.layer import Layer
from infoform.posteriors import LayerPosterior
from infoform.posteriors.network_posterior import Posterior

if TYPE_CHECKING:
    from infoform.predicting.predictor import Predictor

CHUNK_BYTES = 16 * 2**20  # of output gradients, and of Jacobians of one layer, held at a time


def gaussian_outputs(
    predictor: "Predictor", batch: Batch, posteriors: Sequence[Posterior]
) -> tuple[Tensor, Tensor]:  # -> (N, C), (V, N, C, C)
    """Return mean and covariances of the outputs of the network made linear in its weights.

    Gradients are found once for all posteriors.

    Args:
        predictor: the model and its layers; its own posterior is not used.
        batch: inputs of N examples.
        posteriors: V posteriors of the same layers.

    Returns:
        The mean (N, C), and a covariance of every example's outputs under each posterior (V, N, C, C).
    """
    layers, likelihood = predictor.layers, predictor.likelihood
    means, covariances = [], []
    with capturing(predictor.model, {name: layers[name] for name in posteriors[0].layers}) as capture:
        for part in split_batch(batch, _examples_at_once(capture, likelihood, batch)):
            outputs = likelihood.check_outputs(capture.forward(part))
            covariance = outputs.new_zeros(len(posteriors), *outputs.shape, outputs.shape[1], requires_grad=False)
            for name, calls in _collect(capture, outputs).items():
                covariance += _layer_covariances(layers[name], [one.layers[name] for one in posteriors], calls)
            means.append(outputs.detach())
            covariances.append(covariance)
    return torch.cat(means), torch.cat(covariances, dim=1)


def _examples_at_once(capture: Capture, likelihood: Likelihood, batch: Batch) -> int:
    """Return how many examples' output gradients to hold, seen from a run with one example.

    Of C outputs the gradients of a C-th of the batch take about the memory of one plain backward pass.
    """
    outputs = likelihood.check_outputs(capture.forward(next(split_batch(batch, 1))))
    sizes: list[int] = []

    def sink(_: str, calls: list[Call]) -> None:
        sizes.extend(call.gradients.numel() for call in calls if call.gradients is not None)

    capture.backward(outputs, torch.zeros_like(outputs), sink)
    size = sum(sizes) * outputs.shape[1] * outputs.element_size()
    return max(1, CHUNK_BYTES // max(1, size), batch_size(batch) // outputs.shape[1])


@dataclass(frozen=True)
class _LayerCall:
    """One call of a layer, with the gradients of every output in what came out of it."""

    call: Call
    gradients: list[Tensor | None]  # C of (N, ...); None where an output does not depend on this call

    def by_output(self, layer: Layer, part: slice, *, dim: int = 0) -> Tensor:
        """Return the gradients as the layer's rule has them, (H, N, S, G / H), with outputs on a new axis."""
        known = next(gradient for gradient in self.gradients if gradient is not None)
        given = (torch.zeros_like(known) if gradient is None else gradient for gradient in self.gradients)
        return torch.stack([layer.rule.gradients(self.call.module, gradient[part]) for gradient in given], dim)


def _collect(capture: Capture, outputs: Tensor) -> dict[str, list[_LayerCall]]:
    """Send every output back in turn; return what came back, by layer."""
    used: dict[str, dict[int, _LayerCall]] = {}
    count = outputs.shape[1]
    for index in range(count):
        vector = torch.zeros_like(outputs)
        vector[:, index] = 1

        def sink(name: str, calls: list[Call], index: int = index) -> None:
            for call in calls:
                of_layer = used.setdefault(name, {})
                one = of_layer.setdefault(id(call.inputs), _LayerCall(call, [None] * count))
                one.gradients[index] = call.gradients

        capture.backward(outputs, vector, sink, last=index == count - 1)
    return {name: list(calls.values()) for name, calls in used.items()}


def _layer_covariances(
    layer: Layer, posteriors: Sequence[LayerPosterior], used: list[_LayerCall]
) -> Tensor:  # -> (V, N, C, C)
    posterior = posteriors[0]  # all have the same sizes
    examples, count = used[0].call.inputs.shape[0], len(used[0].gradients)
    one = _inputs(layer, used, slice(0, 1))
    num_outputs, num_inputs = layer.shape
    if is_outer(one):
        each = num_inputs + 2 * count * num_outputs + posterior.width * (num_inputs + num_outputs)
    else:
        each = one.numel() + count * num_outputs * (one.shape[2] + 3 * num_inputs)
    chunks = -(-examples * each * one.element_size() // CHUNK_BYTES)
    step = -(-examples // min(chunks, examples))  # of about equal size
    parts = []
    for start in range(0, examples, step):
        part = slice(start, start + step)
        inputs = _inputs(layer, used, part).to(posterior.dtype)  # (H, N, S, A)
        if is_outer(inputs):
            outputs = used[0].by_output(layer, part, dim=2)[0, :, :, 0]  # (N, C, G)
            rows, outputs = inputs[0, :, 0], outputs.to(posterior.dtype)
            parts.append(torch.stack([one.outer_covariance(rows, outputs) for one in posteriors]))
            continue
        outputs = torch.cat([one.by_output(layer, part) for one in used], dim=3).to(posterior.dtype)
        jacobians = torch.einsum("hnsa,chnsg->nchga", inputs, outputs).flatten(2, 3)
        parts.append(torch.stack([one.covariance(jacobians) for one in posteriors]))
    return torch.cat(parts, dim=1)


def _inputs(layer: Layer, used: list[_LayerCall], part: slice) -> Tensor:  # -> (H, N, S, A)
    return torch.cat([layer.rule.inputs(one.call.module, one.call.inputs[part]) for one in used], dim=2)
