"""One prediction for all of a loader's data, by one process or several, and a warning where sampling has spoiled it."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DistributedSampler

from infoform.common.processes import Processes
from infoform.likelihoods import Likelihood
from infoform.network.batches import Batch
from infoform.network.sharding import Shard, dealt_shard
from infoform.posteriors.network_posterior import Posterior
from infoform.predicting.predictor import PredictOptions, Predictor
from infoform.predicting.raw_outputs import RawOutputs
from infoform.predicting.resumable_batches import BatchStore
from infoform.prediction import Examples, Prediction, join_predictions, move_prediction, select_examples


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


def outputs_under(
    predictor: Predictor,
    posteriors: Sequence[Posterior],
    batches: Sequence[Batch],
    options: PredictOptions,
    *,
    sampler: DistributedSampler[Any] | None = None,
    tick: Callable[[int], None] | None = None,
) -> tuple[list[RawOutputs], Tensor | None]:
    """Return the outputs for all batches under each posterior, and the targets where every batch has them.

    Args:
        predictor: the model; its own posterior is not used.
        posteriors: posteriors of the same layers.
        batches: inputs and targets on the model's device.
        options: how to predict.
        sampler: the sampler that dealt the batches out to processes, if one did; then all return the whole.
        tick: called with the size of every batch that is done.
    """
    processes = Processes.running() if sampler is not None else Processes()
    with processes.together():
        under = predictor.raw_outputs_under(posteriors, batches, options, tick=tick)
        targets = [
            predictor.likelihood.check_targets(batch.targets, raw.plain)
            for batch, raw in zip(batches, under[0], strict=True)
            if batch.targets is not None
        ]
        given = torch.cat(targets) if batches and len(targets) == len(batches) else None
        whole: list[RawOutputs] = []
        every = given
        for parts in under:
            own = join_predictions(parts) if parts else None
            joined = join_processes(own, given, processes=processes, shard=dealt_shard(sampler, processes))
            if joined is None:
                raise ValueError("the loader gave no examples to predict.")
            whole.append(joined[0])
            every = joined[1]
    return whole, every


def join_processes(
    prediction: Examples | None, targets: Tensor | None, *, processes: Processes, shard: Shard
) -> tuple[Examples, Tensor | None] | None:
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
