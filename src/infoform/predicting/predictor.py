"""Predictions from a posterior: networks with sampled weights, or the network made linear in its weights.

mc          mean over M networks with sampled weights (the paper)                                  sampled_networks.py
linear      f(x) ~ N(f*, J Σ Jᵀ) in closed form                                                            linear.py
linear-mc   f* + J (θ_m − θ*) by forward-mode differentiation on sampled weights: any number of outputs
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from infoform.common.checks import check_choice, check_whole
from infoform.common.randomness import isolated
from infoform.likelihoods import LINKS, GaussianOutputs, Likelihood
from infoform.network.batches import Batch, batch_size, device_of, read_outputs
from infoform.network.capture import evaluation_mode
from infoform.network.layer import Layer
from infoform.posteriors.network_posterior import Posterior
from infoform.predicting.linear import gaussian_outputs
from infoform.predicting.resumable_batches import BatchCodec, BatchStore, over_batches
from infoform.predicting.sampled_networks import SampledNetworks
from infoform.prediction import Prediction

KINDS = ("linear", "mc", "linear-mc")


@dataclass(frozen=True)
class PredictOptions:
    """How to predict: by which method, with how many samples, by which link, from which seed.

    Raises:
        ValueError: if `kind` or `link` is unknown, or `samples` is not a whole number of at least 1.
    """

    kind: str  # one of KINDS
    samples: int  # networks, or draws of outputs
    link: str  # one of LINKS
    seed: int

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, KINDS)
        check_choice("link", self.link, LINKS)
        check_whole("samples", self.samples)

    @property
    def is_linear(self) -> bool:
        """Whether sampled networks are linear in their weights."""
        return self.kind == "linear-mc"


@dataclass(frozen=True)
class Predictor:
    """A model with a posterior over the weights of its layers; the model is left as found."""

    model: nn.Module
    layers: Mapping[str, Layer]
    likelihood: Likelihood
    posterior: Posterior
    temperature: float = 1.0  # T that logits are divided by

    def predict(self, batch: Batch, options: PredictOptions, *, noise: float | None) -> Prediction:
        """Return the prediction for one batch."""
        _check_size(batch)
        if options.kind == "linear":
            gaussian = GaussianOutputs(*self.linear(batch), samples=options.samples, seed=options.seed)
            return self.from_gaussian(gaussian, noise=noise, link=options.link)
        generator = torch.Generator().manual_seed(options.seed)
        networks = self.sampled(linear=options.is_linear)
        (drawn,) = networks.outputs([batch], samples=options.samples, generator=generator)
        return self.from_samples(drawn, self.outputs(batch), noise=noise)

    def from_gaussian(self, outputs: GaussianOutputs, *, noise: float | None, link: str) -> Prediction:
        """Return the prediction for outputs that are Gaussian, at the temperature of this predictor."""
        prediction = self.likelihood.from_gaussian(outputs.at_temperature(self.temperature), noise=noise, link=link)
        return prediction if self.temperature == 1 else replace(prediction, plain=outputs.mean)

    def from_samples(self, outputs: Tensor, plain: Tensor, *, noise: float | None) -> Prediction:
        """Return the prediction for outputs (M, N, C) of sampled networks, at the temperature of this predictor."""
        scaled = outputs if self.temperature == 1 else outputs / self.temperature
        return self.likelihood.from_samples(scaled, plain, noise=noise)

    def predict_parts(
        self,
        loader: Iterable[Any],
        options: PredictOptions,
        *,
        noise: float | None,
        tick: Callable[[int], None] | None = None,
        store: BatchStore | None = None,
    ) -> tuple[list[Prediction], Tensor | None]:
        """Return the predictions of a loader's batches, and all targets where every batch has them."""
        parts, targets = [], []
        compute = partial(self._predict_each, options=options, noise=noise, often=store is not None, tick=tick)
        codec = BatchCodec(compute, Prediction.tensors, Prediction.of)
        several = options.kind != "linear"  # sampled networks run over several batches at a time
        results = over_batches(loader, codec, device=device_of(self.model), copy_inputs=several, store=store, tick=tick)
        with isolated(options.seed, loader=loader):  # a DataLoader draws a seed, and its order if it shuffles
            for given, prediction in results:
                parts.append(prediction)
                if given is not None:
                    targets.append(self.likelihood.check_targets(given, prediction.plain))
        return parts, torch.cat(targets) if parts and len(targets) == len(parts) else None

    def outputs(self, batch: Batch) -> Tensor:  # -> (N, C)
        """Return the trained network's own outputs."""
        with evaluation_mode(self.model), torch.no_grad():
            return self.forward(batch, self.buffers())

    def linear(self, batch: Batch) -> tuple[Tensor, Tensor]:  # -> (N, C), (N, C, C)
        """Return mean and covariance of the outputs of the network made linear in its weights."""
        return gaussian_outputs(self, batch)

    def sampled(self, *, linear: bool) -> SampledNetworks:
        """Return networks with sampled weights, exact or linear in the weights, which run over many batches."""
        return SampledNetworks(self, linear)

    def forward(self, batch: Batch, state: dict[str, Tensor]) -> Tensor:  # -> (N, C)
        """Return the outputs of the model with these parameters and buffers in place of its own."""
        outputs = functional_call(self.model, state, batch.args, batch.kwargs)
        return self.likelihood.check_outputs(read_outputs(outputs))

    def buffers(self) -> dict[str, Tensor]:
        """Return copies of the model's buffers, which a forward pass may overwrite."""
        return {name: buffer.detach().clone() for name, buffer in self.model.named_buffers()}

    def as_parameters(self, matrices: Mapping[str, Tensor]) -> dict[str, Tensor]:  # (..., G, A) for each layer
        """Cut matrices of layers into the model's parameters, by their names in the model."""
        parameters: dict[str, Tensor] = {}
        for name, matrix in matrices.items():
            parameters.update(self.layers[name].as_parameters(matrix))
        return parameters

    def _predict_each(
        self,
        batches: Iterable[Batch],
        *,
        options: PredictOptions,
        noise: float | None,
        often: bool,
        tick: Callable[[int], None] | None,
    ) -> Iterator[Prediction]:
        if options.kind == "linear":
            for batch in batches:
                yield self.predict(batch, options, noise=noise)
                if tick is not None:
                    tick(batch_size(batch))
            return
        networks = self.sampled(linear=options.is_linear)
        checked = (_check_size(batch) for batch in batches)
        for drawn in networks.over(checked, samples=options.samples, seed=options.seed, often=often, tick=tick):
            yield self.from_samples(drawn.outputs, drawn.plain, noise=noise)


def _check_size(batch: Batch) -> Batch:
    if batch_size(batch) == 0:
        raise ValueError("a batch must have at least one example to predict, got none; check the inputs.")
    return batch
