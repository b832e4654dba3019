"""Results of a loader's batches, in order: computed now, or read from a store that an earlier pass has filled."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from infoform.network.batches import Batch, batch_size, read_batch

Result = TypeVar("Result")


class StoredBatch(Protocol):
    """The place of one batch in a store."""

    result: Mapping[str, Tensor] | None  # what an earlier pass has saved; None where there is nothing

    def save(self, result: Mapping[str, Tensor]) -> None:
        """Store the result of this batch."""


BatchStore = Callable[[Any], StoredBatch]  # called with every batch of a loader in turn


@dataclass(frozen=True)
class BatchCodec(Generic[Result]):
    """How results are computed from batches, and how a store holds them."""

    compute: Callable[
        [Iterable[Batch]], Iterator[Result]
    ]  # one for each batch, in order; may read several batches first
    to_tensors: Callable[[Result], Mapping[str, Tensor]]
    from_tensors: Callable[[Mapping[str, Tensor]], Result]


@dataclass
class _Entry(Generic[Result]):
    """A batch that was read, and is not yet given out."""

    targets: Tensor | None
    place: StoredBatch | None
    results: list[Result] = field(default_factory=list)  # none yet, or one


def over_batches(
    loader: Iterable[Any],
    codec: BatchCodec[Result],
    *,
    device: torch.device,
    copy_inputs: bool = False,
    store: BatchStore | None = None,
    tick: Callable[[int], None] | None = None,
) -> Iterator[tuple[Tensor | None, Result]]:
    """Give the targets and the result of every batch.

    A loader may write the next batch where the last one was, unless it is a list; so targets are copied. Inputs are
    copied with `copy_inputs`, which is for a codec that holds several batches at a time.

    Args:
        loader: batches as `read_batch` takes them.
        codec: computes the results that the store does not have.
        device: where the batches go.
        copy_inputs: whether inputs are copied, too.
        store: has the results of earlier passes, and saves new ones.
        tick: called with the size of every batch that the store has; `codec.compute` does so for the others.
    """
    waiting: deque[_Entry[Result]] = deque()
    reuses_memory = not isinstance(loader, list | tuple)

    def missing() -> Iterator[Batch]:
        for raw in loader:
            batch = read_batch(raw, device)
            if reuses_memory:
                batch = _copy(batch, inputs=copy_inputs)
            entry: _Entry[Result] = _Entry(batch.targets, None if store is None else store(raw))
            waiting.append(entry)
            if entry.place is None or entry.place.result is None:
                yield batch
                continue
            entry.results.append(codec.from_tensors(entry.place.result))
            if tick is not None:
                tick(batch_size(batch))

    def ready() -> Iterator[tuple[Tensor | None, Result]]:
        while waiting and waiting[0].results:
            entry = waiting.popleft()
            yield entry.targets, entry.results[0]

    for result in codec.compute(missing()):
        entry = next(one for one in waiting if not one.results)
        entry.results.append(result)
        if entry.place is not None:
            entry.place.save(codec.to_tensors(result))
        yield from ready()
    yield from ready()


def _copy(batch: Batch, *, inputs: bool) -> Batch:
    def copy(value: Any) -> Any:
        return value.clone() if isinstance(value, Tensor) else value

    if not inputs:
        return Batch(batch.args, batch.kwargs, copy(batch.targets))
    kwargs = {name: copy(value) for name, value in batch.kwargs.items()}
    return Batch(tuple(map(copy, batch.args)), kwargs, copy(batch.targets))
