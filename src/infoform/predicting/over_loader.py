"""One prediction for all of a loader's data, by one process or several, and a warning where sampling has spoiled it."""

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DistributedSampler

from infoform.common.processes import Processes
from infoform.likelihoods import Likelihood
from infoform.network.sharding import Shard, dealt_shard
from infoform.predicting.predictor import PredictOptions, Predictor
from infoform.predicting.resumable_batches import BatchStore
from infoform.prediction import Prediction, join_predictions, move_prediction, select_examples


def predict_all(
    predictor: Predictor,
    loader: Iterable[Any],
    options: PredictOptions,
    *,
    noise: float | None,
    sampler: DistributedSampler[Any] | None,
    gather: bool,
    tick: Callable[[int], None] | None = None,
    keep: BatchStore | None = None,
) -> tuple[Prediction, Tensor | None]:
    """Return one prediction for all data, and the targets where every batch has them.

    Args:
        predictor: the model and its posterior.
        loader: batches as `read_batch` takes them.
        options: how to predict.
        noise: standard deviation σ of the targets, where the likelihood has one.
        sampler: the loader's sampler, where it deals examples out to processes.
        gather: whether every process predicts a part, and all return the whole.
        tick: called with the size of every batch that is done.
        keep: store of finished batches.
    """
    processes = Processes.running() if gather else Processes()
    with processes.together():
        parts, targets = predictor.predict_parts(loader, options, noise=noise, tick=tick, store=keep)
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
        chosen = move_prediction(select_examples(prediction, kept), "cpu")
        own = (chosen, None if targets is None else targets[kept].cpu(), numbers)
    found = [one for one in processes.gather(own) if one is not None]
    if not found:
        return None
    # by number where a sampler has dealt them out; parts that follow each other stay so
    every = [number for _, _, numbers in found for number in numbers]
    order = torch.tensor(every).argsort() if shard.stride > 1 else torch.arange(len(every))
    given = [one for _, one, _ in found if one is not None]
    device = "cpu" if prediction is None else prediction.plain.device
    joined = move_prediction(select_examples(join_predictions([one for one, _, _ in found]), order), device)
    return joined, torch.cat(given)[order].to(device) if len(given) == len(found) else None


def warn_if_worse(kind: str, prediction: Prediction, targets: Tensor | None, *, likelihood: Likelihood) -> bool:
    """Warn the caller's caller if sampled networks are much worse than the trained one; return whether that was done.

    The prior is to blame for it, not the method.
    """
    trouble = likelihood.sampling_trouble(prediction, targets) if kind == "mc" else None
    if trouble is None:
        return False
    warnings.warn(
        f"networks with sampled weights are much worse than the trained one ({trouble}): the posterior is too "
        "wide for this network; call tune(val_loader, kind='mc'), raise prior_precision, or predict with "
        "kind='linear'.",
        stacklevel=3,
    )
    return True
