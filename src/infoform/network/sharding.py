"""Which part of the data this process has: the numbers of its examples among those of all processes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset

from infoform.common.processes import Processes
from infoform.common.randomness import isolated
from infoform.network.batches import batch_size, read_batch
from infoform.network.plain_run import uncompiled


@dataclass(frozen=True)
class Shard:
    """Which numbers the examples of this process have among those of all."""

    start: int = 0
    stride: int = 1
    total: int | None = None  # a sampler may fill up with examples that it gave before: their numbers are from here on
    count: int | None = None  # of this process' examples, where they were counted

    def numbers(self, done: int, count: int) -> range:
        """Return the numbers of the next `count` examples; fewer, where some of them are copies."""
        first = self.start + done * self.stride
        stop = first + count * self.stride
        return range(first, max(first, stop if self.total is None else min(stop, self.total)), self.stride)


def shard_of(loader: Iterable[Any], processes: Processes, *, seed: int) -> Shard:
    """Return the numbers of this process' examples: as if one process read all of the data, in its order.

    A DistributedSampler deals examples out like cards; all other parts follow each other in the processes' order.
    """
    sampler = distributed_sampler(loader)
    if processes.count == 1 or sampler is not None:
        return dealt_shard(sampler, processes)
    if isinstance(loader, Iterator):
        raise ValueError(
            "with several processes the examples are counted before the fit, and the loader is an iterator; "
            "pass a DataLoader or a list."
        )
    own = _count(loader, seed)
    return Shard(sum(processes.gather(own)[: processes.rank]), count=own)


def dealt_shard(sampler: DistributedSampler[Any] | None, processes: Processes) -> Shard:
    """Return the numbers of the examples that a sampler gives to this process."""
    if processes.count == 1 or sampler is None:
        return Shard()
    if (sampler.num_replicas, sampler.rank) != (processes.count, processes.rank):
        raise ValueError(
            f"the loader's DistributedSampler must be for process {processes.rank} of {processes.count}, got one for "
            f"process {sampler.rank} of {sampler.num_replicas}; make it after torch.distributed is initialised."
        )
    return Shard(processes.rank, processes.count, total=len(sampler.dataset))  # type: ignore[arg-type]


def unwrap(model: nn.Module) -> nn.Module:
    """Return the model inside DistributedDataParallel or torch.compile; raise for one spread over processes."""
    inner = uncompiled(model)
    while isinstance(inner, DistributedDataParallel | DataParallel):
        inner = uncompiled(inner.module)
    for name, module in inner.named_modules():
        kinds = {base.__name__ for base in type(module).__mro__}
        if kinds & {"FullyShardedDataParallel", "FSDPModule"}:
            raise TypeError(
                f"the weights of '{name or type(module).__name__}' are sharded by FSDP, and a posterior needs whole "
                "layers; give Laplace a copy of the model with the full state dict (DistributedDataParallel works)."
            )
    for name, parameter in inner.named_parameters():
        if "DTensor" in {base.__name__ for base in type(parameter).__mro__}:
            raise TypeError(
                f"'{name}' is a DTensor, a part of which is on each device, and a posterior needs whole layers; give "
                "Laplace a copy of the model with the full state dict."
            )
    return inner


def distributed_sampler(loader: object) -> DistributedSampler[Any] | None:
    """Return the sampler that deals a DataLoader's examples out to processes, if it has one."""
    batch_sampler = getattr(loader, "batch_sampler", None)
    for one in (getattr(loader, "sampler", None), getattr(batch_sampler, "sampler", None)):
        if isinstance(one, DistributedSampler):
            return one
    return None


def _count(loader: Iterable[Any], seed: int) -> int:
    """Return the number of a loader's examples, without reading them where its sampler knows it."""
    if (
        isinstance(loader, DataLoader)
        and type(loader.batch_sampler) is BatchSampler
        and not isinstance(loader.dataset, IterableDataset)
    ):
        sampler = loader.batch_sampler
        count = len(sampler.sampler)  # type: ignore[arg-type]
        return count - count % sampler.batch_size if sampler.drop_last else count
    with isolated(seed, loader=loader):
        return sum(batch_size(read_batch(raw, torch.device("cpu"))) for raw in loader)
