"""The data of one process, batch by batch: each pass starts at the beginning, or goes on where one was stopped."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from infoform.common.digest import update_digest
from infoform.common.json_values import from_json
from infoform.fitting.repeating_workers import RepeatingWorkers
from infoform.likelihoods import DataSummary
from infoform.likelihoods.own_data import add_counts
from infoform.network.batches import Batch, batch_size, is_divisible, read_batch, split_batch
from infoform.network.sharding import Shard


@dataclass
class PassProgress:
    """How far a pass has come, and what it knows of the data besides the sums."""

    batches: int = 0
    examples: int = 0
    num_outputs: int = 0
    num_targets: int = 0  # of examples, or of positions that count
    positions: int = 1  # of an example, at most
    log_likelihood: float = 0.0
    counts: dict[str, float] = field(default_factory=dict)  # of answers and targets, see infoform.likelihoods.own_data
    labelled: bool = True  # whether all examples so far had labels, and were scored
    digest: int = 0  # of all batches
    marks: list[int] = field(default_factory=list)  # digests of the first 1, 2, 4, 8, ... batches
    called: set[str] = field(default_factory=set)  # layers whose module ran
    reached: set[str] = field(default_factory=set)  # layers that a gradient came back to
    odd: dict[str, str] = field(default_factory=dict)  # layers that must be held fixed, and why
    without_gradient: set[str] = field(default_factory=set)  # layers that ran under torch.no_grad()

    @property
    def opening(self) -> int | None:
        """Return the digest of the first batch."""
        return self.marks[0] if self.marks else None

    def summary(self) -> DataSummary:
        if not self.labelled:
            return DataSummary(self.examples, self.num_outputs, None, positions=self.positions)
        targets = None if self.positions == 1 and self.num_targets == self.examples else self.num_targets
        return DataSummary(self.examples, self.num_outputs, self.log_likelihood, self.counts, targets, self.positions)

    def state(self) -> dict[str, Any]:
        """Return the same as plain values, for a checkpoint."""
        return vars(self) | {name: sorted(getattr(self, name)) for name in _SETS}

    @classmethod
    def restored(cls, state: dict[str, Any]) -> "PassProgress":
        """Undo `state`."""
        found = from_json(cls, state, "progress")
        if min(found.batches, found.examples, found.num_outputs, found.num_targets, found.positions) < 0:
            raise ValueError("a pass cannot have read a negative number of batches, examples or targets.")
        return found

    def of_all(self, others: Iterable["PassProgress"]) -> "PassProgress":
        """Return what this process knows when all processes, of which it is one, have told what they know."""
        every = list(others)
        return PassProgress(
            self.batches,
            sum(one.examples for one in every),
            max(one.num_outputs for one in every),
            sum(one.num_targets for one in every),
            max(one.positions for one in every),
            sum(one.log_likelihood for one in every),
            add_counts([one.counts for one in every]),
            all(one.labelled for one in every),
            self.digest,
            self.marks,
            set().union(*(one.called for one in every)),
            set().union(*(one.reached for one in every)),
            {name: reason for one in reversed(every) for name, reason in one.odd.items()},
            set().union(*(one.without_gradient for one in every)),
        )


_SETS = ("called", "reached", "without_gradient")


@dataclass(frozen=True)
class ReadBatch:
    """One batch of a loader."""

    batch: Batch
    size: int  # its examples, as far as its tensors tell
    used: bool  # whether the pass sums it, or only counts its examples


@dataclass(frozen=True)
class BatchReader:
    """Reads the loader of this process, once for each pass."""

    loader: Iterable[Any]
    device: torch.device
    seed: int  # of the random numbers that a shuffling loader draws
    shard: Shard = field(default_factory=Shard)  # this process' part of the data
    first_number: int = 0  # of the first example: earlier fits have used the numbers before

    def read(
        self,
        progress: PassProgress,
        *,
        share: float,
        check: Callable[[PassProgress], None],
        skipped: Callable[[], None],
        failed: Callable[[], None],
    ) -> Iterator[ReadBatch]:
        """Yield the batches that have not been read before, and take care that the others are the same as then.

        Args:
            progress: How far the pass has come; the caller counts batches and examples, this the digests.
            share: Share of the batches, evenly spread, that are used.
            check: Is called after 1, 2, 4, ... batches; raises where they are others than in the pass before.
            skipped: Is called for each batch that was read before.
            failed: Is called when the loader raises an error at a batch that was not read before.
        """
        done, digest, count = progress.batches, 0, 0
        repeating = RepeatingWorkers(self.loader)
        batches = iter(self.loader)
        while True:
            try:
                raw = next(batches)
            except StopIteration:
                break
            except Exception:
                if count >= done:
                    failed()  # Ctrl-C ends a loader's workers, too
                raise
            repeating.look(raw)
            digest = update_digest(raw, digest)
            count += 1
            if count > done:
                progress.digest = digest
                if count & (count - 1) == 0:
                    progress.marks.append(digest)
                    check(progress)
                yield self._prepare(raw, progress, share)
                continue
            skipped()
            if count == done and digest != progress.digest:
                raise ValueError(
                    f"the loader must give the same data as before the fit was stopped, and its first {done} batches "
                    "are others now; use one whose order is reproducible (no time or outside randomness in it), or "
                    "delete the checkpoint to start again."
                )
        repeating.finish()
        if count < done:
            raise ValueError(
                f"the loader must give the same data as before the fit was stopped, at least {done} batches, "
                f"got {count}; give it all of the data, or delete the checkpoint to start again."
            )

    def numbers(self, done: int, count: int) -> range:
        """Return the numbers of the next examples among those of all processes, and of earlier fits."""
        own = self.shard.numbers(done, count)
        return range(self.first_number + own.start, self.first_number + own.stop, own.step)

    def check_count(self, examples: int) -> None:
        """Raise unless a pass has given as many examples as were counted before the fit, where they were."""
        if self.shard.count is not None and examples != self.shard.count:
            raise ValueError(
                f"the loader must give as many examples each time, got {self.shard.count} when they were counted, then "
                f"{examples}; use a collate function that leaves none out."
            )

    def _prepare(self, raw: Any, progress: PassProgress, share: float) -> ReadBatch:
        batch, number = read_batch(raw, self.device), progress.batches
        used = math.ceil((number + 1) * share) > math.ceil(number * share)
        if self.shard.total is None:
            return ReadBatch(batch, batch_size(batch), used)
        fresh = len(self.shard.numbers(progress.examples, batch_size(batch)))  # the others are copies
        if fresh < batch_size(batch) and not is_divisible(batch):
            raise ValueError(
                "the last batch of a DistributedSampler has copies of examples, and examples cannot be taken out of "
                "batches like these; use DistributedSampler(drop_last=True), or tensors with one row an example."
            )
        return ReadBatch(next(split_batch(batch, max(1, fresh))), fresh, used and fresh > 0)
