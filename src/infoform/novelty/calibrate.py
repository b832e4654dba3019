"""Percentiles of novelty from known data that the network was not trained on."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DistributedSampler

from infoform.common.processes import Processes
from infoform.network.batches import Batch, batch_size
from infoform.network.sharding import dealt_shard
from infoform.novelty.calibration import Calibration, Scores
from infoform.novelty.scorer import NoveltyScorer

HELD_OUT = "known data that was given for it"


class Calibrated(NamedTuple):
    """Percentiles, and the scores that they are of."""

    calibration: Calibration
    scores: Scores  # of all examples, those of several processes one after the other

    @property
    def novelty(self) -> Tensor:  # (n,)
        """Return the novelty of these examples."""
        return self.calibration.novelty(self.scores, dtype=torch.float32).novelty


def calibrate(
    scorer: NoveltyScorer,
    batches: Iterable[Batch],
    *,
    sampler: DistributedSampler[Any] | None = None,
    tick: Callable[[int], None] | None = None,
) -> Calibrated:
    """Return the percentiles of these data.

    Args:
        scorer: The network and what is known of its inputs.
        batches: Known data.
        sampler: The sampler that deals the data out to processes, if one does; then all return the whole.
        tick: Called with the size of every batch that is done.

    Raises:
        ValueError: If there are no examples, the network does not take them, or its activations are not finite.
    """
    processes = Processes() if sampler is None else Processes.running()
    shard = dealt_shard(sampler, processes)
    parts: list[Scores] = []
    with processes.together():
        for batch in batches:
            if batch_size(batch):
                parts.append(_scores(scorer, batch).to("cpu"))
            if tick is not None:
                tick(batch_size(batch))
        own = Scores.joined(parts) if parts else None
        if own is not None:  # without the copies by which a sampler fills up
            own = own.first(len(shard.numbers(0, len(own))))
        found = [one for one in processes.gather(own) if one is not None]
        if not found:
            raise ValueError("novelty is calibrated on known examples, and the loader gave none; check the data.")
        scores = Scores.joined(found)
        return Calibrated(Calibration.of(scores, scorer.known.layer_names, source=HELD_OUT), scores)


def _scores(scorer: NoveltyScorer, batch: Batch) -> Scores:
    """Return the scores of a batch; where the network cannot take it, say so."""
    try:
        return scorer.scores(batch)
    except RuntimeError as error:
        shapes = ", ".join(str(tuple(one.shape)) for one in batch.tensors())
        raise ValueError(
            f"known data must be such as the network takes, and it fails on a batch of shape {shapes} "
            f"({str(error).splitlines()[0]}); give data of the form that it was trained on."
        ) from error
