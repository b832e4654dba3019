"""Several processes, one fit: what they tell each other, by torch.distributed where that is initialised.

Every process reads its own part of the data. What it has summed is added up once a pass, eigendecompositions are shared
out by layer, and all processes end with the same result. Alone, a process tells nothing, and nothing here costs time.

Nobody waits for one that has failed: each exchange says first whether all are well, and `together` takes part in the
next one for a process that is not. A process that was killed closes its connections, which ends the others' waiting.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

BUCKET_BYTES = 64 * 2**20  # of sums that are sent at a time


class Summed(Protocol):
    """What adds up over processes: it gives its totals by name, and takes those of all."""

    def state(self) -> dict[str, Tensor]:
        """Return what was summed here, by name."""

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from these sums."""


class PeerError(RuntimeError):
    """Another process has failed, so that this one cannot go on."""


@dataclass(frozen=True)
class Processes:
    """The processes of torch.distributed's default group, or this one alone."""

    rank: int = 0
    count: int = 1

    @classmethod
    def running(cls) -> "Processes":
        if dist.is_available() and dist.is_initialized():
            return cls(dist.get_rank(), dist.get_world_size())
        return cls()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Run the block in all processes to its end, or in none."""
        try:
            yield
        except PeerError:
            raise
        except BaseException as error:
            if self.count > 1:
                with suppress(PeerError):
                    self._exchange(None, failure=f"{type(error).__name__}: {error}")
            raise
        self.gather(None)

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all processes, in their order; raise a PeerError if one of them has failed."""
        if self.count == 1:
            return [value]
        found = self._exchange(value)
        for rank, (failure, _) in enumerate(found):
            if failure is not None:
                raise PeerError(
                    f"process {rank} of {self.count} stopped with '{failure}', so process {self.rank} stops, too; "
                    "mend that and start all of them again."
                )
        return [other for _, other in found]

    def check_same(self, identity: Mapping[str, Any]) -> None:
        """Raise unless model and settings are the same in all processes."""
        first = self.gather(dict(identity))[0]
        names = [name for name in {**first, **identity} if first.get(name) != identity.get(name)]
        differing = self.gather(names)
        for rank, other in enumerate(differing):
            if other:
                raise ValueError(
                    f"all processes must fit the same model with the same settings, and process {rank} has another "
                    f"{other[0]} than process 0; load the same weights in each."
                )

    def check_parts(self, first_batch: int | None) -> None:
        """Raise if all processes were given the same data; `first_batch` is a checksum of this one's first batch."""
        found = [one for one in self.gather(first_batch) if one is not None]
        if len(found) > 1 and len(set(found)) == 1:
            raise ValueError(
                "each process must have a part of the data of its own, and the first batches of all are the same; "
                "give the DataLoader a torch.utils.data.DistributedSampler."
            )

    def add_up(self, sums: Sequence[Summed], *, device: torch.device) -> None:
        """Put the totals over all processes in the place of what each has summed."""
        if self.count == 1:
            return
        states = {(index, name): one for index, own in enumerate(sums) for name, one in own.state().items()}
        kinds: dict[tuple[int, str], tuple[torch.Size, torch.dtype]] = {}
        # one that had no data, or whose data did not reach a layer, learns the sizes from others
        for rank, known in enumerate(self.gather({key: (one.shape, one.dtype) for key, one in states.items()})):
            for key, kind in known.items():
                if kinds.setdefault(key, kind) != kind:
                    raise ValueError(
                        f"all processes must sum the same, and process {rank} has {kind} where others have "
                        f"{kinds[key]}; give all of them data of the same type."
                    )
        for dtype in sorted({dtype for _, dtype in kinds.values()}, key=str):
            keys = sorted(key for key, (_, own) in kinds.items() if own == dtype)
            for bucket in _buckets(keys, {key: math.prod(kinds[key][0]) * dtype.itemsize for key in keys}):
                sizes = [math.prod(kinds[key][0]) for key in bucket]
                flat = torch.zeros(sum(sizes), dtype=dtype, device=device)
                for key, place in zip(bucket, flat.split(sizes), strict=True):
                    if key in states:
                        place.copy_(states[key].reshape(-1))
                with self._connected():
                    dist.all_reduce(flat)
                for key, total in zip(bucket, flat.split(sizes), strict=True):
                    shape = kinds[key][0]
                    if key in states and shape:
                        states[key].copy_(total.view(shape))  # which keeps how it lies in memory
                    else:
                        states[key] = total.view(shape).clone()
        for index, own in enumerate(sums):
            own.restore({name: one for (place, name), one in states.items() if place == index})

    def owners(self, costs: Mapping[str, float]) -> dict[str, int]:
        """Share work out: the dearest first, each to the process that has least to do."""
        loads = [0.0] * self.count
        owners = {}
        for name in sorted(costs, key=lambda name: -costs[name]):
            owners[name] = min(range(self.count), key=lambda rank: loads[rank])
            loads[owners[name]] += costs[name]
        return owners

    def spread(
        self, tensors: Mapping[str, Tensor], owner: Callable[[str], int], *, device: torch.device
    ) -> dict[str, Tensor]:
        """Return the tensors of all processes; `owner` tells which of them has one, by its name."""
        if self.count == 1:
            return dict(tensors)
        kinds: dict[str, tuple[torch.Size, torch.dtype]] = {}
        for known in self.gather({name: (one.shape, one.dtype) for name, one in tensors.items()}):
            kinds |= known
        complete = {}
        for name, (shape, dtype) in sorted(kinds.items()):
            one = tensors[name].contiguous() if name in tensors else torch.empty(shape, dtype=dtype, device=device)
            with self._connected():
                dist.broadcast(one, owner(name))
            complete[name] = one
        return complete

    def _exchange(self, value: Any, *, failure: str | None = None) -> list[tuple[str | None, Any]]:
        found: list[Any] = [None] * self.count
        with self._connected():
            dist.all_gather_object(found, (failure, value))
        return found

    @contextmanager
    def _connected(self) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, OSError) as error:
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise PeerError(
                f"process {self.rank} of {self.count} has lost the others (one was killed, or did not answer in time: "
                f"{reason[-1]}); start all of them again."
            ) from error


def _buckets(keys: Sequence[tuple[int, str]], sizes: Mapping[tuple[int, str], int]) -> Iterator[list[tuple[int, str]]]:
    bucket: list[tuple[int, str]] = []
    held = 0
    for key in keys:
        if bucket and held + sizes[key] > BUCKET_BYTES:
            yield bucket
            bucket, held = [], 0
        bucket.append(key)
        held += sizes[key]
    if bucket:
        yield bucket
