"""One prediction for all of a loader's data, by one process or several, and a warning where sampling has spoiled it."""

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DistributedSampler

from infoform.common.ignored import counting
from infoform.common.processes import Processes
from infoform.likelihoods import Likelihood
from infoform.network.batches import Batch, batch_size
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
SCORED_NUMBERS = 2**23  # numbers that a trial of a search keeps for them, about


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
        scored = _ScoredRows(predictor.likelihood, batches)
        under = predictor.raw_outputs_under(posteriors, batches, options, tick=tick, keep=scored.keep)
        targets = [scored.targets[number] for number in sorted(scored.targets)]
        if sampler is not None and scored.has_positions:
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


class _ScoredRows:
    """Keeps the rows of outputs that are scored, and the targets of these.

    Rows are positions where there are some: those that have a target and, of very many, some of every example, the same
    under each posterior and in each trial.
    """

    def __init__(self, likelihood: Likelihood, batches: Sequence[Batch]) -> None:
        self._likelihood, self._batches = likelihood, batches
        self._starts = [0, *accumulate(map(batch_size, batches))]
        self.targets: dict[int, Tensor] = {}  # by batch
        self.has_positions = False

    def keep(self, number: int, raw: RawOutputs) -> RawOutputs:
        """Return what is kept of the outputs for a batch, and note its targets."""
        given, start = self._batches[number].targets, self._starts[number]
        self.has_positions = self.has_positions or bool(raw.positions)
        if given is None or not raw.positions:
            if given is not None:
                self.targets[number] = self._likelihood.arrange_targets(given, raw.plain)
            return raw
        arranged = raw.arranged
        matched = self._likelihood.row_targets(self._likelihood.arrange_targets(given, arranged), arranged)
        assert matched.targets is not None
        rows = torch.arange(len(raw), device=raw.plain.device) if matched.rows is None else matched.rows
        places, outputs = math.prod(raw.positions), raw.plain.shape[1]
        each = outputs * (outputs if raw.samples is None else len(raw.samples))  # numbers of a row
        most = most_positions(max(1, self._starts[-1]), each)
        kept = _some_of_each(rows // places, most, seed=start)
        self.targets[number] = matched.targets[kept.to(matched.targets.device)]
        return replace(select_examples(raw, rows[kept]), positions=(), examples=rows[kept] // places + start)


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


def most_positions(examples: int, numbers: int = 1) -> int:
    """Return how many positions of an example are scored, at most.

    Args:
        examples: how many there are.
        numbers: how many a position takes, of outputs of networks or of a covariance.
    """
    return max(1, min(SCORED_ROWS, SCORED_NUMBERS // numbers) // examples)


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
