"""One prediction for all of a loader's data, by one process or several, and a warning where sampling has spoiled it."""

import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DistributedSampler

from infoform.common.processes import Processes
from infoform.network.sharding import Shard, dealt_shard
from infoform.predicting.predictor import PredictOptions, Predictor
from infoform.predicting.resumable_batches import BatchStore
from infoform.prediction import Prediction, join_predictions


def predict_all(
    predictor: Predictor,
    loader: Iterable[Any],
    how: PredictOptions,
    *,
    noise: float | None,
    sampler: DistributedSampler[Any] | None,
    gather: bool,
    tick: Callable[[int], None] | None = None,
    keep: BatchStore | None = None,
) -> tuple[Prediction, Tensor | None]:
    """Return one prediction for all data, and the targets where every batch has them.

    With `gather` each process predicts its part, which the sampler may have dealt out, and all return the whole.
    """
    processes = Processes.running() if gather else Processes()
    with processes.together():
        parts, targets = predictor.predict_parts(loader, how, noise=noise, tick=tick, keep=keep)
        own = join_predictions(parts) if parts else None
        every = join_processes(own, targets, processes=processes, shard=dealt_shard(sampler, processes))
        if every is None:
            raise ValueError("the loader gave no examples to predict.")
    return every


def join_processes(
    prediction: Prediction | None, targets: Tensor | None, *, processes: Processes, shard: Shard
) -> tuple[Prediction, Tensor | None] | None:
    """Return the predictions of all processes in the order of the data, without a sampler's copies."""
    if processes.count == 1:
        return None if prediction is None else (prediction, targets)
    own = None
    if prediction is not None:
        numbers = list(shard.numbers(0, len(prediction)))
        kept = torch.arange(len(numbers))
        own = (_chosen(prediction, kept, "cpu"), None if targets is None else targets[kept].cpu(), numbers)
    found = [one for one in processes.gather(own) if one is not None]
    if not found:
        return None
    # by number where a sampler has dealt them out; parts that follow each other stay so
    every = [number for _, _, numbers in found for number in numbers]
    order = torch.tensor(every).argsort() if shard.stride > 1 else torch.arange(len(every))
    given = [one for _, one, _ in found if one is not None]
    device = "cpu" if prediction is None else prediction.plain.device
    joined = _chosen(join_predictions([one for one, _, _ in found]), order, device)
    return joined, torch.cat(given)[order].to(device) if len(given) == len(found) else None


def warn_if_worse(kind: str, prediction: Prediction, targets: Tensor | None) -> bool:
    """Warn the caller's caller if sampled networks are much worse than the trained one; return whether that was done.

    The prior is to blame for it, not the method.
    """
    trouble = sampling_trouble(prediction, targets) if kind == "mc" else None
    if trouble is None:
        return False
    warnings.warn(
        f"networks with sampled weights are much worse than the trained one ({trouble}): the posterior is too "
        "wide for this network; call tune(val_loader, kind='mc'), raise prior_precision, or predict with "
        "kind='linear'.",
        stacklevel=3,
    )
    return True


def sampling_trouble(prediction: Prediction, targets: Tensor | None) -> str | None:
    """Say what is wrong if the sampled networks are much worse than the trained one; None if they are not."""
    if not bool(prediction.value.isfinite().all()):
        return "the sampled networks' outputs are not finite"
    if prediction.probs is None:
        if targets is None:
            return None
        shape = prediction.plain.shape
        plain, sampled = (
            (out - targets.reshape(shape)).square().mean().sqrt() for out in (prediction.plain, prediction.value)
        )
        return f"their RMSE is {sampled:.3g}, the trained network's {plain:.3g}" if sampled > 1.5 * plain else None
    if not math.isclose(prediction.max_entropy, math.log(prediction.plain.shape[1])):
        return None  # yes/no questions have no single label to compare
    plain_labels = prediction.plain.argmax(1)
    if targets is None:
        agreement = float((prediction.labels == plain_labels).float().mean())
        return f"they agree with the trained network on {agreement:.0%} of the inputs" if agreement < 0.5 else None
    plain, sampled = ((labels == targets).double().mean() for labels in (plain_labels, prediction.labels))
    error = (plain * (1 - plain) / len(targets)).sqrt()
    if plain - sampled > 0.05 + 2 * error:
        return f"their accuracy is {sampled:.1%}, the trained network's {plain:.1%}"
    return None


def _chosen(prediction: Prediction, order: Tensor, device: torch.device | str) -> Prediction:
    """Return the prediction of some examples."""
    values: dict[str, Any] = {}
    for one in fields(Prediction):
        value = getattr(prediction, one.name)
        if isinstance(value, Tensor):
            values[one.name] = value.index_select(1 if one.name == "samples" else 0, order.to(value.device)).to(device)
    return replace(prediction, **values)
