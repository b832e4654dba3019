"""Predictions from a posterior: networks with sampled weights, or the network made linear in its weights.

mc          mean over M networks with sampled weights (the paper)
linear      f(x) ~ N(f*, J Σ Jᵀ): closed form from each layer's inputs and gradients; J is formed nowhere but for a
            convolution's own weights, a few examples at a time
linear-mc   f* + J (θ_m − θ*) by forward-mode differentiation on sampled weights: any number of outputs
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from infoform.common.checks import check_choice, check_whole
from infoform.common.randomness import isolated
from infoform.layers.base import is_outer
from infoform.likelihoods import LINKS, Likelihood
from infoform.network.batches import Batch, batch_size, device_of, split_batch
from infoform.network.capture import Call, Capture, capturing
from infoform.network.layer import Layer
from infoform.posteriors import LayerPosterior
from infoform.posteriors.network_posterior import Posterior
from infoform.predicting.resumable_batches import BatchCodec, BatchStore, over_batches
from infoform.predicting.sampled_networks import SampledNetworks
from infoform.prediction import Prediction

KINDS = ("linear", "mc", "linear-mc")
CHUNK_BYTES = 16 * 2**20  # of output gradients, and of Jacobians of one layer, held at a time


@dataclass(frozen=True)
class PredictOptions:
    """How to predict, checked when it is said."""

    kind: str
    samples: int
    link: str
    seed: int

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, KINDS)
        check_choice("link", self.link, LINKS)
        check_whole("samples", self.samples)


@dataclass(frozen=True)
class Predictor:
    """A model with a posterior over its weights; the model is left as found."""

    model: nn.Module
    layers: Mapping[str, Layer]
    likelihood: Likelihood
    posterior: Posterior

    def predict(self, batch: Batch, how: PredictOptions, *, noise: float | None) -> Prediction:
        """Return the prediction for one batch."""
        _check_size(batch)
        generator = torch.Generator().manual_seed(how.seed)
        if how.kind == "linear":
            mean, covariance = self.linear(batch)
            return self.likelihood.from_gaussian(
                mean, covariance, noise=noise, link=how.link, samples=how.samples, generator=generator
            )
        drawn = self.sampled_outputs(batch, samples=how.samples, generator=generator, linear=how.kind == "linear-mc")
        return self.likelihood.from_samples(drawn, self.outputs(batch), noise=noise)

    def predict_parts(
        self,
        loader: Iterable[Any],
        how: PredictOptions,
        *,
        noise: float | None,
        tick: Callable[[int], None] | None = None,
        keep: BatchStore | None = None,
    ) -> tuple[list[Prediction], Tensor | None]:
        """Return the predictions of a loader's batches, and all targets where every batch has them."""
        parts, targets = [], []
        make = partial(self._predict_each, how=how, noise=noise, often=keep is not None, tick=tick)
        kind = BatchCodec(make, Prediction.tensors, Prediction.of)
        device, copied = device_of(self.model), how.kind != "linear"
        with isolated(how.seed, loader=loader):  # a DataLoader draws a seed, and its order if it shuffles
            for given, prediction in over_batches(loader, kind, device=device, copied=copied, keep=keep, tick=tick):
                parts.append(prediction)
                if given is not None:
                    targets.append(self.likelihood.check_targets(given, prediction.plain))
        return parts, torch.cat(targets) if parts and len(targets) == len(parts) else None

    def outputs(self, batch: Batch) -> Tensor:  # -> (N, C)
        """Return the trained network's own outputs."""
        return self.sampled(linear=False).plain(batch)

    def sampled_outputs(
        self, batch: Batch, *, samples: int, generator: torch.Generator, linear: bool
    ) -> Tensor:  # -> (M, N, C)
        """Return the outputs of networks with sampled weights, exact or linear in the weights."""
        return self.sampled(linear=linear).outputs([batch], samples=samples, generator=generator)[0]

    def sampled(self, *, linear: bool) -> SampledNetworks:
        """Return the networks with sampled weights, which can be run over many batches."""
        return SampledNetworks(self.model, self.layers, self.likelihood, self.posterior, linear)

    def linear(self, batch: Batch) -> tuple[Tensor, Tensor]:  # -> (N, C), (N, C, C)
        """Return mean and covariance of the outputs of the network made linear in its weights."""
        covered = {name: self.layers[name] for name in self.posterior.layers}
        means, covariances = [], []
        with capturing(self.model, covered) as capture:
            for part in split_batch(batch, self._examples_at_once(capture, batch)):
                outputs = self.likelihood.check_outputs(capture.forward(part))
                covariance = outputs.new_zeros(*outputs.shape, outputs.shape[1], requires_grad=False)
                for name, used in _collect(capture, outputs).items():
                    covariance += _layer_covariance(self.layers[name], self.posterior.layers[name], used)
                means.append(outputs.detach())
                covariances.append(covariance)
        return torch.cat(means), torch.cat(covariances)

    def _predict_each(
        self,
        batches: Iterable[Batch],
        *,
        how: PredictOptions,
        noise: float | None,
        often: bool,
        tick: Callable[[int], None] | None,
    ) -> Iterator[Prediction]:
        if how.kind == "linear":
            for batch in batches:
                yield self.predict(batch, how, noise=noise)
                if tick is not None:
                    tick(batch_size(batch))
            return
        networks = self.sampled(linear=how.kind == "linear-mc")
        checked = (_check_size(batch) for batch in batches)
        for one in networks.over(checked, samples=how.samples, seed=how.seed, often=often, tick=tick):
            yield self.likelihood.from_samples(one.outputs, one.plain, noise=noise)

    def _examples_at_once(self, capture: Capture, batch: Batch) -> int:
        """Return how many examples' output gradients to hold, seen from a run with one example.

        Of C outputs the gradients of a C-th of the batch take about the memory of one plain backward pass.
        """
        one = next(split_batch(batch, 1))
        outputs = self.likelihood.check_outputs(capture.forward(one))
        seen: list[int] = []

        def sink(_: str, calls: list[Call]) -> None:
            seen.extend(call.gradients.numel() for call in calls if call.gradients is not None)

        capture.backward(outputs, torch.zeros_like(outputs), sink)
        size = sum(seen) * outputs.shape[1] * outputs.element_size()
        return max(1, CHUNK_BYTES // max(1, size), batch_size(batch) // outputs.shape[1])


def _check_size(batch: Batch) -> Batch:
    if batch_size(batch) == 0:
        raise ValueError("a batch must have at least one example to predict, got none; check the inputs.")
    return batch


@dataclass(frozen=True)
class _Used:
    """One call of a layer, with the gradients of every output in what came out of it."""

    call: Call
    gradients: list[Tensor | None]  # C of (N, ...); None where an output does not depend on this call

    def by_output(self, layer: Layer, part: slice, *, dim: int = 0) -> Tensor:
        """Return the gradients as the layer's rule has them, (H, N, S, G / H), with outputs on a new axis."""
        known = next(gradient for gradient in self.gradients if gradient is not None)
        given = (torch.zeros_like(known) if gradient is None else gradient for gradient in self.gradients)
        return torch.stack([layer.rule.gradients(self.call.module, gradient[part]) for gradient in given], dim)


def _collect(capture: Capture, outputs: Tensor) -> dict[str, list[_Used]]:
    """Send every output back in turn; return what came back, by layer."""
    used: dict[str, dict[int, _Used]] = {}
    count = outputs.shape[1]
    for index in range(count):
        vector = torch.zeros_like(outputs)
        vector[:, index] = 1

        def sink(name: str, calls: list[Call], index: int = index) -> None:
            for call in calls:
                of_layer = used.setdefault(name, {})
                one = of_layer.setdefault(id(call.inputs), _Used(call, [None] * count))
                one.gradients[index] = call.gradients

        capture.backward(outputs, vector, sink, last=index == count - 1)
    return {name: list(calls.values()) for name, calls in used.items()}


def _layer_covariance(layer: Layer, posterior: LayerPosterior, used: list[_Used]) -> Tensor:  # -> (N, C, C)
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
            parts.append(posterior.outer_covariance(inputs[0, :, 0], outputs.to(posterior.dtype)))
            continue
        outputs = torch.cat([one.by_output(layer, part) for one in used], dim=3).to(posterior.dtype)
        jacobians = torch.einsum("hnsa,chnsg->nchga", inputs, outputs).flatten(2, 3)
        parts.append(posterior.covariance(jacobians))
    return torch.cat(parts)


def _inputs(layer: Layer, used: list[_Used], part: slice) -> Tensor:  # -> (H, N, S, A)
    return torch.cat([layer.rule.inputs(one.call.module, one.call.inputs[part]) for one in used], dim=2)
