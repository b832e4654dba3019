"""What an exportable form loses against the prediction over all layers, measured on validation data."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from infoform.export.kinds import restricted
from infoform.export.options import HEADS, LAST_LAYER, LINEAR, SAMPLES, ExportOptions
from infoform.network.batches import Batch, batch_size, cut_batch, read_batch
from infoform.predicting.predictor import PredictOptions, Predictor
from infoform.predicting.raw_outputs import RawOutputs
from infoform.tuning.temperature import best_temperature

MOST = 500  # examples that are predicted: "linear" takes tens of forward passes for each


def first_examples(loader: Iterable[Any], device: torch.device, most: int = MOST) -> list[Batch]:
    """Return the first batches of a loader, of at most so many examples together.

    Raises:
        ValueError: if there are none, or a batch has no targets.
    """
    batches: list[Batch] = []
    left = most
    for raw in loader:
        batch = read_batch(raw, device)
        if batch.targets is None:
            raise ValueError("validation data need targets, and the loader gave none; give (input, target) batches.")
        batches.append(cut_batch(batch, slice(0, left)))
        left -= batch_size(batches[-1])
        if left <= 0:
            break
    if not batches or not any(map(batch_size, batches)):
        raise ValueError("validation data must have at least one example, got none; check the loader.")
    return batches


def predict_options(kind: str, options: ExportOptions) -> PredictOptions:
    """Return how a prediction is made that has the form of an export."""
    how = "mc" if kind in (SAMPLES, HEADS) else "linear"
    return PredictOptions(how, options.count(kind), options.link or "mc", options.seed)


def tuned_temperature(predictor: Predictor, batches: list[Batch], options: PredictOptions) -> Predictor:
    """Return the predictor at the temperature of least NLL; as it is where outputs are no logits."""
    if not predictor.likelihood.has_logits:
        return predictor
    raws, targets = _raw(predictor, batches, options)

    def loss(temperature: float) -> float:
        return _nll(replace(predictor, temperature=temperature), raws, targets, options, None)

    return replace(predictor, temperature=best_temperature(loss))


def measured_losses(
    predictor: Predictor, head: str | None, batches: list[Batch], *, noise: float | None, options: ExportOptions
) -> dict[str, float]:
    """Return the NLL of "linear" over all layers, and of each form that can be exported at a temperature of its own."""
    losses = {}
    for kind in (LINEAR, LAST_LAYER, SAMPLES):
        if kind == LAST_LAYER and head is None:
            continue
        how = predict_options(kind, options)
        own = restricted(predictor, head) if kind == LAST_LAYER and head is not None else predictor
        own = own if kind == LINEAR else tuned_temperature(own, batches, how)
        losses[kind] = _nll(own, *_raw(own, batches, how), how, noise)
    return losses


def refusal(losses: dict[str, float] | None, *, samples: int) -> str:
    """Return why "linear" over all layers is not exported, and what can be in its place."""
    why = "kind='linear' over all layers needs Jacobians, which no exported graph computes"
    if losses is None:
        return (
            f"{why}; export kind='{LAST_LAYER}' or kind='{SAMPLES}', and give validation=loader (in the command: "
            "--data) to see what each of them loses on your data."
        )
    forms = [f"kind='{SAMPLES}' ({losses[SAMPLES]:.4f} with {samples} networks)"]
    if LAST_LAYER in losses:
        forms.insert(0, f"kind='{LAST_LAYER}' (NLL {losses[LAST_LAYER]:.4f} on your validation data)")
    return f"{why}: it has NLL {losses[LINEAR]:.4f}; export {' or '.join(forms)}."


def _raw(predictor: Predictor, batches: list[Batch], options: PredictOptions) -> tuple[list[RawOutputs], Tensor]:
    with replace(predictor, novelty=None).private() as private:
        raws = list(private.raw_outputs(batches, options))
    checked = [
        predictor.likelihood.check_targets(batch.targets, raw.plain)
        for batch, raw in zip(batches, raws, strict=True)
        if batch.targets is not None
    ]
    return raws, torch.cat(checked)


def _nll(
    predictor: Predictor, raws: list[RawOutputs], targets: Tensor, options: PredictOptions, noise: float | None
) -> float:
    start, total = 0, 0.0
    for raw in raws:
        prediction = predictor.from_outputs(raw, options, noise=noise)
        own = targets[start : start + len(raw)]
        total += len(raw) * predictor.likelihood.scores(prediction, own)["nll"]
        start += len(raw)
    return total / start
