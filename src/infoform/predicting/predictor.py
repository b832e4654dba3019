"""Predictions from a posterior: networks with sampled weights, or the network made linear in its weights (kinds.py)."""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from infoform.common.checks import check_choice, check_whole
from infoform.common.randomness import isolated
from infoform.likelihoods import LINKS, GaussianOutputs, Likelihood, OutputCovariance
from infoform.likelihoods.positions import as_rows, positions_of
from infoform.network.attention_setting import own_attention
from infoform.network.batches import Batch, batch_size, device_of, read_outputs, split_batch, token_mask
from infoform.network.capture import evaluation_mode
from infoform.network.layer import Layer
from infoform.network.private_copy import PrivateCopies
from infoform.novelty.scorer import NoveltyScorer
from infoform.posteriors.network_posterior import Posterior
from infoform.predicting.checks import PredictionChecks
from infoform.predicting.implicit_outputs import examples_at_a_time
from infoform.predicting.kinds import (
    ASKED,
    AUTO,
    KINDS,
    KINDS_AND_AUTO,
    LAST,
    MANY_OUTPUTS,
    KindChoice,
    choose_kind,
    may_be_last,
)
from infoform.predicting.last_layer import outputs_and_inputs
from infoform.predicting.linear import gaussian_outputs
from infoform.predicting.raw_outputs import RawOutputs
from infoform.predicting.resumable_batches import BatchCodec, BatchStore, over_batches
from infoform.predicting.sampled_networks import SampledNetworks
from infoform.prediction import Novelty, Prediction, join_predictions, join_targets, select_examples

EXAMPLES = 1024  # whose covariances are found at a time, where there are few outputs
COVARIANCE_BYTES = 32 * 2**20  # of covariances in float64 held at a time
__all__ = ["KINDS", "PredictOptions", "Predictor"]


@dataclass(frozen=True)
class PredictOptions:
    """How to predict: by which method, with how many samples, by which link, from which seed.

    Raises:
        ValueError: if `kind` or `link` is unknown, or `samples` is not a whole number of at least 1.
    """

    kind: str  # "auto" or one of KINDS
    samples: int  # networks, or draws of outputs
    link: str  # one of LINKS
    seed: int

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, KINDS_AND_AUTO)
        check_choice("link", self.link, LINKS)
        check_whole("samples", self.samples)


@dataclass(frozen=True)
class Predictor:
    """A model with a posterior over the weights of its layers; the model is left as found.

    While it predicts it sets hooks and flags of the model's modules; `private` gives one that sets those of a copy.
    """

    model: nn.Module
    layers: Mapping[str, Layer]
    likelihood: Likelihood
    posterior: Posterior
    temperature: float = 1.0  # T that logits are divided by
    num_outputs: int | None = None  # C, where it is known before a forward pass
    positions: int = 1  # P, of the examples of the fit at most
    novelty: NoveltyScorer | None = None  # where predictions tell how strange their inputs look
    copies: PrivateCopies | None = None  # of the user's model, where they are kept
    checks: PredictionChecks = field(default_factory=PredictionChecks, repr=False)
    shared: "Predictor | None" = field(default=None, repr=False)  # that this one is a private one of

    @property
    def can_be_copied(self) -> bool:
        """Whether several private predictors can work side by side."""
        shared = self.shared or self
        return (shared.copies or PrivateCopies(shared.model)).possible

    @contextmanager
    def private(self) -> Iterator["Predictor"]:
        """Give a predictor with modules that no other thread uses in the block."""
        shared = self.shared or self
        with (shared.copies or PrivateCopies(shared.model)).private() as copy:
            yield replace(
                shared,
                model=copy.model,
                layers={name: shared.layers[name].on(copy) for name in shared.posterior.layers},
                novelty=None if shared.novelty is None else shared.novelty.on(copy),
                shared=shared,
            )

    def predict(self, batch: Batch, options: PredictOptions, *, noise: float | None) -> Prediction:
        """Return the prediction for one batch."""
        (prediction,) = self._predict_each([batch], options=options, noise=noise)
        return prediction

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
        choice = self._choice(options)
        if choice.kind != "linear":
            yield from self._sampled_outputs(checked, choice, options, often=often, tick=tick)
            return
        for batch in checked:
            last = self._last_layer_outputs(batch)
            yield self._all_layers_outputs(batch, options) if last is None else last
            if tick is not None:
                tick(batch_size(batch))

    def raw_outputs_under(
        self,
        posteriors: Sequence[Posterior],
        batches: Sequence[Batch],
        options: PredictOptions,
        *,
        tick: Callable[[int], None] | None = None,
        keep: Callable[[int, RawOutputs], RawOutputs] = lambda number, raw: raw,
    ) -> list[list[RawOutputs]]:
        """Return the outputs for every batch under each of several posteriors, in place of the predictor's own.

        Args:
            posteriors: posteriors of the same layers.
            batches: batches of at least one example.
            options: how to predict.
            tick: called with the size of a batch whenever its share of the work is done.
            keep: what is kept of the outputs for the batch of a number.

        Returns:
            One list for each posterior, with the outputs for each batch; gradients of "linear" are found once.
        """
        if options.kind != "linear":
            own = (replace(self, posterior=posterior) for posterior in posteriors)
            return [
                [keep(number, raw) for number, raw in enumerate(one.raw_outputs(batches, options, tick=tick))]
                for one in own
            ]
        under: list[list[RawOutputs]] = [[] for _ in posteriors]
        for number, batch in enumerate(batches):
            last = outputs_and_inputs(self, _check_size(batch)) if self._may_be_last else None
            if last is None:
                mean, covariances = gaussian_outputs(self, batch, posteriors)
                every = [_raw(mean, covariance, kind="linear") for covariance in covariances]
            else:
                every = [replace(self, posterior=one)._of_last_layer(*last) for one in posteriors]
            for outputs, raw in zip(under, every, strict=True):
                outputs.append(keep(number, raw))
            if tick is not None:
                tick(batch_size(batch))
        return under

    def from_outputs(self, raw: RawOutputs, options: PredictOptions, *, noise: float | None) -> Prediction:
        """Return the prediction that these outputs make at the temperature of this predictor."""
        if raw.samples is not None:
            scaled = raw.samples if self.temperature == 1 else raw.samples / self.temperature
            prediction = self.likelihood.from_samples(scaled, raw.plain, noise=noise)
        elif raw.covariance is not None:
            prediction = self._from_gaussian(raw, raw.covariance, options, noise=noise)
        else:
            prediction = self._from_last_layer(raw, options, noise=noise)
        if options.kind == AUTO and raw.plain.shape[1] * math.prod(raw.positions) > MANY_OUTPUTS:
            prediction = replace(prediction, samples=None)  # of a loader's data they would be M times the outputs
        prediction = replace(prediction, kind=raw.kind, reason=raw.reason)
        if not raw.positions:
            return prediction
        mask = None if raw.mask is None else raw.mask.view(-1, *raw.positions)
        return prediction.at_positions(raw.positions, mask)

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
        several = options.kind != "linear"  # sampled networks may run over several batches at a time
        results = over_batches(loader, codec, device=device_of(self.model), copy_inputs=several, store=store, tick=tick)
        with isolated(options.seed, loader=loader):  # a DataLoader draws a seed, and its order if it shuffles
            for given, prediction in results:
                parts.append(prediction)
                if given is not None:
                    arranged = self.likelihood.arrange_targets(given, prediction.plain)
                    self.likelihood.row_targets(arranged, prediction.plain)  # checks their values
                    targets.append(arranged)
        whole = parts and len(targets) == len(parts)
        return parts, join_targets(targets, len(parts[0].positions)) if whole else None

    def outputs(self, batch: Batch) -> Tensor:  # -> (N, *P, C)
        """Return the trained network's own outputs."""
        with evaluation_mode(self.model), torch.no_grad():
            return self._arranged(batch, self.buffers())

    def linear(self, batch: Batch) -> tuple[Tensor, Tensor]:  # -> (N, *P, C), (R, C, C)
        """Return mean and covariance of the outputs of the network made linear in its weights."""
        mean, covariances = gaussian_outputs(self, batch, [self.posterior])
        return mean, covariances[0]

    def sampled(self, *, linear: bool) -> SampledNetworks:
        """Return networks with sampled weights, exact or linear in the weights, which run over many batches."""
        return SampledNetworks(self, linear)

    def forward(self, batch: Batch, state: dict[str, Tensor]) -> Tensor:  # -> (R, C)
        """Return the outputs of the model with these parameters and buffers in place of its own, as rows."""
        return as_rows(self._arranged(batch, state))

    def _arranged(self, batch: Batch, state: dict[str, Tensor]) -> Tensor:  # -> (N, *P, C)
        with own_attention(self.model):
            outputs = functional_call(self.model, state, batch.args, batch.kwargs)
        return self.likelihood.arrange_outputs(read_outputs(outputs))

    def buffers(self) -> dict[str, Tensor]:
        """Return copies of the model's buffers, which a forward pass may overwrite."""
        return {name: buffer.detach().clone() for name, buffer in self.model.named_buffers()}

    def as_parameters(self, matrices: Mapping[str, Tensor]) -> dict[str, Tensor]:  # (..., G, A) for each layer
        """Cut matrices of layers into the model's parameters, by their names in the model."""
        parameters: dict[str, Tensor] = {}
        for name, matrix in matrices.items():
            parameters.update(self.layers[name].as_parameters(matrix))
        return parameters

    @property
    def _may_be_last(self) -> bool:
        return may_be_last([layer.shape for layer in self.posterior.layers.values()], self.num_outputs)

    def _choice(self, options: PredictOptions) -> KindChoice:
        """Return the way of predicting, as far as it is known before a forward pass."""
        if options.kind != AUTO:
            return KindChoice(options.kind, ASKED)
        return KindChoice("linear", LAST) if self._may_be_last else choose_kind(self.num_outputs, self.positions)

    def _sampled_outputs(
        self,
        batches: Iterable[Batch],
        choice: KindChoice,
        options: PredictOptions,
        *,
        often: bool = False,
        tick: Callable[[int], None] | None = None,
    ) -> Iterator[RawOutputs]:
        networks = self.sampled(linear=choice.kind == "linear-mc")
        masks: deque[Tensor | None] = deque()  # of batches that are read, and not yet predicted
        read = _noting(batches, lambda batch: masks.append(token_mask(batch)))
        for drawn in networks.over(read, samples=options.samples, seed=options.seed, often=often, tick=tick):
            mask, kind, reason = masks.popleft(), choice.kind, choice.reason
            yield _raw(drawn.plain, samples=drawn.outputs, mask=mask, kind=kind, reason=reason)

    def _last_layer_outputs(self, batch: Batch) -> RawOutputs | None:
        """Return the outputs by one forward pass, where the last layer alone has a posterior."""
        found = outputs_and_inputs(self, batch) if self._may_be_last else None
        if found is None:
            return None
        return self._of_last_layer(*found, mask=token_mask(batch))

    def _of_last_layer(self, plain: Tensor, inputs: Tensor, *, mask: Tensor | None = None) -> RawOutputs:
        (layer,) = self.posterior.layers.values()
        covariance = None
        if plain.shape[-1] <= MANY_OUTPUTS:
            parts = [self._last_layer_covariance(part).dense() for part in inputs.split(EXAMPLES)]
            covariance = torch.cat(parts).to(plain)
        return _raw(plain, covariance, inputs=inputs, layer=layer, kind="linear", reason=LAST, mask=mask)

    def _all_layers_outputs(self, batch: Batch, options: PredictOptions) -> RawOutputs:
        """Return the outputs in closed form for any layers, or sampled ones where "auto" takes these."""
        choice = (
            choose_kind(self.num_outputs, self.positions) if options.kind == AUTO else KindChoice(options.kind, ASKED)
        )
        if choice.kind == "linear-mc":  # the only layer with a posterior is not the last, as it turned out
            (raw,) = self._sampled_outputs([batch], choice, options)
            return raw
        return _raw(*self.linear(batch), kind=choice.kind, reason=choice.reason, mask=token_mask(batch))

    def _last_layer_covariance(self, inputs: Tensor) -> OutputCovariance:  # (N, A)
        (layer,) = self.posterior.layers.values()
        return layer.output_covariance(inputs.to(layer.device, layer.dtype))

    @property
    def is_implicit(self) -> bool:
        """Whether covariances are so large that they are found anew from the last layer's inputs when needed."""
        return self._may_be_last and (self.num_outputs or 0) > MANY_OUTPUTS

    def _from_gaussian(
        self, raw: RawOutputs, covariance: Tensor | OutputCovariance, options: PredictOptions, *, noise: float | None
    ) -> Prediction:
        gaussian = GaussianOutputs(raw.plain, covariance, samples=options.samples, seed=options.seed)
        scaled = gaussian.at_temperature(self.temperature)
        prediction = self.likelihood.from_gaussian(scaled, noise=noise, link=options.link)
        return prediction if self.temperature == 1 else replace(prediction, plain=raw.plain)

    def _from_last_layer(self, raw: RawOutputs, options: PredictOptions, *, noise: float | None) -> Prediction:
        """Return the prediction of many outputs, some examples at a time; single draws are not kept."""
        assert raw.inputs is not None
        (layer,) = self.posterior.layers.values()
        parts = []
        for places in torch.arange(len(raw)).split(examples_at_a_time(raw, layer, options)):
            part = select_examples(raw, places)
            assert part.inputs is not None
            wide = replace(part, plain=part.plain.to(layer.device, layer.dtype))
            prediction = self._from_gaussian(wide, self._last_layer_covariance(part.inputs), options, noise=noise)
            parts.append(replace(prediction, samples=None, plain=part.plain))
        return join_predictions(parts)

    def _predict_each(
        self,
        batches: Iterable[Batch],
        *,
        options: PredictOptions,
        noise: float | None,
        often: bool = False,
        tick: Callable[[int], None] | None = None,
    ) -> Iterator[Prediction]:
        if self._choice(options).kind != "linear":
            seen: deque[Novelty | None] = deque()  # of batches that are read, and not yet predicted
            read = _noting(batches, lambda batch: seen.append(self._novelty_of(batch)))
            for raw in self.raw_outputs(read, options, often=often, tick=tick):
                yield replace(self.from_outputs(raw, options, noise=noise), input_novelty=seen.popleft())
            return
        for batch in batches:
            with nullcontext() if self.novelty is None else self.novelty.watching(batch) as pooled:
                last = self._last_layer_outputs(_check_size(batch))
            raws = iter([last]) if last is not None else self._in_parts(batch, options)
            parts = []
            for raw in raws:
                parts.append(self.from_outputs(raw, options, noise=noise))
                if tick is not None:
                    tick(raw.num_examples)
            if self.novelty is None or pooled is None or last is None:
                novelty = self._novelty_of(batch)
            else:  # the forward pass has shown the other layers, too
                novelty = self.novelty.novelty_of(pooled, last.arranged)
            prediction = parts[0] if len(parts) == 1 else join_predictions(parts)
            yield replace(prediction, input_novelty=novelty)

    def _novelty_of(self, batch: Batch) -> Novelty | None:
        return None if self.novelty is None else self.novelty.novelty(_check_size(batch))

    def _in_parts(self, batch: Batch, options: PredictOptions) -> Iterator[RawOutputs]:
        """Give the outputs of as many examples at a time as their C × C covariances allow."""
        count = batch_size(batch)
        if self.num_outputs is not None:
            count = max(1, min(count, COVARIANCE_BYTES // (8 * self.positions * self.num_outputs**2)))
        return (self._all_layers_outputs(part, options) for part in split_batch(batch, count))


def _raw(
    plain: Tensor, covariance: Tensor | None = None, *, mask: Tensor | None = None, **fields: Any
) -> RawOutputs:  # (N, *P, C), (R, C, C)
    """Return outputs as rows, with the positions that these are of."""
    fits = mask is not None and mask.shape == plain.shape[:-1]
    rows = mask.flatten() if fits and mask is not None else None
    return RawOutputs(as_rows(plain), covariance, positions=positions_of(plain), mask=rows, **fields)


def _noting(batches: Iterable[Batch], note: Callable[[Batch], None]) -> Iterator[Batch]:
    for batch in batches:
        note(batch)
        yield batch


def _check_size(batch: Batch) -> Batch:
    if batch_size(batch) == 0:
        raise ValueError("a batch must have at least one example to predict, got none; check the inputs.")
    return batch
