"""Predictions from a posterior: networks with sampled weights, or the network made linear in its weights.

mc          mean over M networks with sampled weights (the paper)                                  sampled_networks.py
linear      f(x) ~ N(f*, J Σ Jᵀ) in closed form                                                            linear.py
linear-mc   f* + J (θ_m − θ*) by forward-mode differentiation on sampled weights: any number of outputs
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from infoform.predicting.raw_outputs import RawOutputs
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
        (raw,) = self.raw_outputs([batch], options)
        return self.from_outputs(raw, options, noise=noise)

    def raw_outputs(
        self,
        batches: Iterable[Batch],
        options: PredictOptions,
        *,
        often: bool = False,
        tick: Callable[[int], None] | None = None,
    ) -> Iterator[RawOutputs]:
        """Give the outputs for one batch after the other, before they become predictions.

        Args:
            batches: batches of at least one example.
            options: how to predict.
            often: whether outputs of sampled networks come after a few batches.
            tick: called with the size of a batch whenever its share of the work is done.
        """
        checked = (_check_size(batch) for batch in batches)
        if options.kind == "linear":
            for batch in checked:
                yield RawOutputs(*self.linear(batch))
                if tick is not None:
                    tick(batch_size(batch))
            return
        networks = self.sampled(linear=options.is_linear)
        for drawn in networks.over(checked, samples=options.samples, seed=options.seed, often=often, tick=tick):
            yield RawOutputs(drawn.plain, samples=drawn.outputs)

    def raw_outputs_under(
        self,
        posteriors: Sequence[Posterior],
        batches: Sequence[Batch],
        options: PredictOptions,
        *,
        tick: Callable[[int], None] | None = None,
    ) -> list[list[RawOutputs]]:
        """Return the outputs for every batch under each of several posteriors, in place of the predictor's own.

        Args:
            posteriors: posteriors of the same layers.
            batches: batches of at least one example.
            options: how to predict.
            tick: called with the size of a batch whenever its share of the work is done.

        Returns:
            One list for each posterior, with the outputs for each batch; gradients of "linear" are found once.
        """
        if options.kind != "linear":
            return [
                list(replace(self, posterior=posterior).raw_outputs(batches, options, tick=tick))
                for posterior in posteriors
            ]
        under: list[list[RawOutputs]] = [[] for _ in posteriors]
        for batch in batches:
            mean, covariances = gaussian_outputs(self, _check_size(batch), posteriors)
            for outputs, covariance in zip(under, covariances, strict=True):
                outputs.append(RawOutputs(mean, covariance))
            if tick is not None:
                tick(batch_size(batch))
        return under

    def from_outputs(self, raw: RawOutputs, options: PredictOptions, *, noise: float | None) -> Prediction:
        """Return the prediction that these outputs make at the temperature of this predictor."""
        if raw.samples is not None:
            scaled = raw.samples if self.temperature == 1 else raw.samples / self.temperature
            return self.likelihood.from_samples(scaled, raw.plain, noise=noise)
        assert raw.covariance is not None
        gaussian = GaussianOutputs(raw.plain, raw.covariance, samples=options.samples, seed=options.seed)
        scaled_gaussian = gaussian.at_temperature(self.temperature)
        prediction = self.likelihood.from_gaussian(scaled_gaussian, noise=noise, link=options.link)
        return prediction if self.temperature == 1 else replace(prediction, plain=raw.plain)

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
        mean, covariances = gaussian_outputs(self, batch, [self.posterior])
        return mean, covariances[0]

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
        for raw in self.raw_outputs(batches, options, often=often, tick=tick):
            yield self.from_outputs(raw, options, noise=noise)


def _check_size(batch: Batch) -> Batch:
    if batch_size(batch) == 0:
        raise ValueError("a batch must have at least one example to predict, got none; check the inputs.")
    return batch
