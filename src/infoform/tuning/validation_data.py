"""The data that hyperparameters are chosen on: all of it, and a part that stands for the rest."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch.utils.data import DistributedSampler

from infoform.common.digest import update_digest
from infoform.common.randomness import isolated
from infoform.network.batches import Batch, batch_size, read_batch, select_rows
from infoform.network.sharding import distributed_sampler


@dataclass(frozen=True)
class ValidationData:
    """The batches of a validation loader, and the sampler that dealt them out to processes, if one did."""

    batches: list[Any]
    sampler: DistributedSampler[Any] | None

    @classmethod
    def read(cls, loader: Iterable[Any], *, seed: int) -> "ValidationData":
        """Read a loader once.

        Args:
            loader: Gives batches with targets.
            seed: Of its shuffling, if it shuffles.
        """
        with isolated(seed, loader=loader):
            return cls(list(loader), distributed_sampler(loader))

    @property
    def checksum(self) -> int | None:
        """Return what tells these data from others; None for one process' part of them."""
        if self.sampler is not None:
            return None
        return reduce(lambda digest, batch: update_digest(batch, digest), self.batches, 0)

    def on(self, device: torch.device) -> list[Batch]:
        """Return all batches there."""
        return [read_batch(batch, device) for batch in self.batches]


def every_nth(batches: list[Batch], step: int) -> list[Batch] | None:
    """Return every `step`-th example; None where a batch cannot be cut into examples."""
    chosen: list[Batch] = []
    start = 0  # in the next batch
    for batch in batches:
        size = batch_size(batch)
        rows = list(range(start, size, step))
        if rows:
            part = select_rows(batch, rows)
            if part is None:
                return None
            chosen.append(part)
        start = (start - size) % step
    return _joined(chosen)


def _joined(batches: list[Batch]) -> list[Batch]:
    """Return batches of plain tensors with equal shapes as one, which is faster than many small ones."""
    first = batches[0]
    if first.kwargs or first.targets is None or len(first.args) != 1 or not isinstance(first.args[0], torch.Tensor):
        return batches
    inputs = [batch.args[0] for batch in batches]
    targets = [batch.targets for batch in batches if batch.targets is not None]
    alike = all(one.shape[1:] == inputs[0].shape[1:] for one in inputs)
    if not alike or len(targets) < len(batches) or any(one.shape[1:] != targets[0].shape[1:] for one in targets):
        return batches
    return [Batch((torch.cat(inputs),), {}, torch.cat(targets))]
