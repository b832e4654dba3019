"""What is made of a loader's batches, in their order: anew, or as it was kept from an earlier pass over the data."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from infoform.network.batches import Batch, batch_size, read_batch

Made = TypeVar("Made")


class StoredBatch(Protocol):
    """The place of one batch."""

    found: Mapping[str, Tensor] | None  # what was kept of it

    def add(self, made: Mapping[str, Tensor]) -> None:
        """Keep what was made of it now."""


BatchStore = Callable[[Any], StoredBatch]  # called with every batch of a loader in turn


@dataclass(frozen=True)
class BatchCodec(Generic[Made]):
    """What is made of batches, and how it is kept."""

    make: Callable[[Iterable[Batch]], Iterator[Made]]  # one a batch, in order; it may ask for several first
    pack: Callable[[Made], Mapping[str, Tensor]]
    unpack: Callable[[Mapping[str, Tensor]], Made]


@dataclass
class _Entry(Generic[Made]):
    targets: Tensor | None
    slot: StoredBatch | None
    made: list[Made] = field(default_factory=list)  # none yet, or one


def over_batches(
    loader: Iterable[Any],
    kind: BatchCodec[Made],
    *,
    device: torch.device,
    copied: bool = False,
    keep: BatchStore | None = None,
    tick: Callable[[int], None] | None = None,
) -> Iterator[tuple[Tensor | None, Made]]:
    """Give the targets of every batch, and what was made of it.

    A loader may write the next batch where the last one was, unless it is a list; so targets are copied, and with
    `copied`, which is for a `kind.make` that holds several batches at a time, all else is too. `tick` is for batches
    that were kept; `kind.make` has its own.
    """
    waiting: deque[_Entry[Made]] = deque()
    fleeting = not isinstance(loader, list | tuple)

    def missing() -> Iterator[Batch]:
        for raw in loader:
            batch = read_batch(raw, device)
            if fleeting:
                batch = _copy(batch, all_of_it=copied)
            entry: _Entry[Made] = _Entry(batch.targets, None if keep is None else keep(raw))
            waiting.append(entry)
            if entry.slot is None or entry.slot.found is None:
                yield batch
                continue
            entry.made.append(kind.unpack(entry.slot.found))
            if tick is not None:
                tick(batch_size(batch))

    def ready() -> Iterator[tuple[Tensor | None, Made]]:
        while waiting and waiting[0].made:
            entry = waiting.popleft()
            yield entry.targets, entry.made[0]

    for made in kind.make(missing()):
        entry = next(one for one in waiting if not one.made)
        entry.made.append(made)
        if entry.slot is not None:
            entry.slot.add(kind.pack(made))
        yield from ready()
    yield from ready()


def _copy(batch: Batch, *, all_of_it: bool) -> Batch:
    def copy(value: Any) -> Any:
        return value.clone() if isinstance(value, Tensor) else value

    if not all_of_it:
        return Batch(batch.args, batch.kwargs, copy(batch.targets))
    kwargs = {name: copy(value) for name, value in batch.kwargs.items()}
    return Batch(tuple(map(copy, batch.args)), kwargs, copy(batch.targets))
