"""One prediction for all of a loader's data, by one process or several, and a warning where sampling has spoiled it."""

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DistributedSampler

from infoform.common.ignored import counting
from infoform.common.processes import Processes
from infoform.likelihoods import Likelihood
from infoform.network.batches import Batch
from infoform.network.sharding import Shard, dealt_shard
from infoform.posteriors.network_posterior import Posterior
from infoform.predicting.predictor import PredictOptions, Predictor
from infoform.predicting.raw_outputs import RawOutputs
from infoform.predicting.resumable_batches import BatchStore
from infoform.prediction import (
    Examples,
    Prediction,
    join_predictions,
    join_targets,
    move_prediction,
    select_examples,
)

SCORED_ROWS = 2**16  # positions that a search or a calibration keeps of all data, about


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
        under, targets = _with_targets(predictor, under, batches)
        if sampler is not None and any(raw.examples is not None for raw in under[0]):
            raise ValueError(
                "a search on outputs with positions is made by one process, and this loader has a DistributedSampler; "
                "tune in one process and load its posterior in the others."
            )
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


def _with_targets(
    predictor: Predictor, under: list[list[RawOutputs]], batches: Sequence[Batch]
) -> tuple[list[list[RawOutputs]], list[Tensor]]:
    """Return outputs with the rows alone that are scored, and the targets of these.

    Rows are positions where there are some: those that have a target and, of very many, some of every example, the same
    under each posterior and in each trial.
    """
    likelihood, targets, start = predictor.likelihood, [], 0
    total = max(1, sum(raw.num_examples for raw in under[0]))
    found: list[list[RawOutputs]] = [[] for _ in under]
    for number, batch in enumerate(batches):
        parts = [raws[number] for raws in under]
        first = parts[0]
        if batch.targets is None or not first.positions:
            if batch.targets is not None:
                targets.append(likelihood.arrange_targets(batch.targets, first.plain))
        else:
            arranged = first.arranged
            matched = likelihood.row_targets(likelihood.arrange_targets(batch.targets, arranged), arranged)
            assert matched.targets is not None
            rows = torch.arange(len(first), device=first.plain.device) if matched.rows is None else matched.rows
            kept = _some_of_each(rows // math.prod(first.positions), most_positions(total), seed=start)
            targets.append(matched.targets[kept.to(matched.targets.device)])
            examples = rows[kept] // math.prod(first.positions) + start
            parts = [replace(select_examples(raw, rows[kept]), positions=(), examples=examples) for raw in parts]
        for raws, part in zip(found, parts, strict=True):
            raws.append(part)
        start += first.num_examples
    return found, targets


def scored_rows(prediction: Prediction, targets: Tensor) -> tuple[Prediction, Tensor, Tensor | None]:
    """Return a prediction and targets with a row for every position that is scored, and the example of each row.

    Args:
        prediction: at positions or not.
        targets: as `Laplace.predict_loader` returns them.

    Returns:
        Both as they are, and None, where there are no positions.
    """
    if not prediction.positions:
        return prediction, targets, None
    there = counting(targets, 1 + len(prediction.positions)).to(prediction.epistemic.device)
    rows, kept = prediction.as_rows(there)
    examples = kept // math.prod(prediction.positions)
    some = _some_of_each(examples, most_positions(len(prediction)), seed=0)
    given = targets.flatten(0, len(prediction.positions))[kept[some].to(targets.device)]
    return select_examples(rows, some), given, examples[some]


def most_positions(examples: int) -> int:
    """Return how many positions of an example are scored, at most, where there are so many examples."""
    return max(1, SCORED_ROWS // examples)


def _some_of_each(examples: Tensor, most: int, *, seed: int) -> Tensor:  # (r,), in order -> (k,)
    """Return places of at most so many rows of each example, at random, in their order."""
    order = torch.rand(len(examples), generator=torch.Generator().manual_seed(seed)).to(examples.device)
    ranked = (examples.double() + order).argsort()  # by example, and in random order within
    _, counts = examples.unique_consecutive(return_counts=True)
    within = torch.arange(len(examples), device=examples.device) - (counts.cumsum(0) - counts).repeat_interleave(counts)
    return ranked[within < most].sort().values


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
    if len(given) < len(found):
        return joined, None
    axes = len(joined.positions) if isinstance(joined, Prediction) else 0
    return joined, join_targets(given, axes)[order].to(device)


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
