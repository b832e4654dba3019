"""A fit within a budget of memory: layers in groups, each with passes of its own over the data.

Neither a layer's gradients nor its random numbers depend on which other layers are looked at, so that the result is
that of one fit of all layers. What a group takes is estimated from the first batch (fit_memory.py).
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from infoform.common.processes import Processes
from infoform.common.randomness import isolated
from infoform.curvature.curvature import Fit
from infoform.curvature.merge import merge_fits
from infoform.fitting.checkpoint import Checkpoint
from infoform.fitting.fit import FitTask, UnreachedError, fit_curvature
from infoform.fitting.fit_memory import choose_groups, layer_memory
from infoform.fitting.placement import Placement
from infoform.network.batches import Batch, batch_size, read_batch
from infoform.network.probe import probe_batch
from infoform.novelty.memory import novelty_memory


def fit_in_groups(
    task: FitTask,
    loader: Iterable[Any],
    *,
    max_memory: int,
    previous: Fit | None = None,
    checkpoint: Checkpoint | None = None,
    progress: bool = True,
) -> Fit:
    """As `fit_curvature`, within about so many bytes on the device of the work, beside model and data.

    Args:
        task: As for `fit_curvature`.
        loader: The data, which every group of layers reads.
        max_memory: Bytes that a group may take.
        previous: As for `fit_curvature`.
        checkpoint: As for `fit_curvature`; every group has a folder of its own in that of the fit.
        progress: As for `fit_curvature`.
    """
    groups = _groups(task, loader, max_memory=max_memory, update=previous is not None)
    if len(groups) == 1:
        return fit_curvature(task, loader, previous=previous, checkpoint=checkpoint, progress=progress)
    parts = [None if checkpoint is None else checkpoint.group(number) for number, _ in enumerate(groups, start=1)]
    fits: list[Fit] = []
    missed = 0
    for number, (names, part) in enumerate(zip(groups, parts, strict=True), start=1):
        label = f"group {number} of {len(groups)}: "
        before = None if previous is None else _fit_of(previous, names)
        own = task.of(names)
        if any(fit.novelty is not None for fit in fits):  # the inputs of all layers have been seen
            own = replace(own, novelty_bytes=None)
        try:
            fits.append(fit_curvature(own, loader, previous=before, checkpoint=part, progress=progress, label=label))
        except UnreachedError as error:
            missed += 1
            if missed == len(groups):
                raise
            fits.append(error.fit if before is None else merge_fits(before, error.fit))
        _check_same_data(fits)
    for part in parts:
        if part is not None:
            part.clear()
    # an update has the layers of the fit before first, as without groups
    return _joined(fits, order=[*(() if previous is None else previous.curvature), *task.layers])


def _groups(task: FitTask, loader: Iterable[Any], *, max_memory: int, update: bool) -> list[list[str]]:
    """Return the names of the layers that are fitted together."""
    processes, place = Processes.running(), task.place
    with processes.together():
        batch = _first_batch(loader, task.settings.seed, place)
        own = None
        if batch is not None:
            seen = probe_batch(task.model, batch, also=task.layers, device=place.device)
            needed = layer_memory(task.layers, seen, task.request, task.settings)
            if update:  # what is measured and what it is merged to are there together
                needed = {name: replace(one, sums=(one.sums[0], 2 * one.sums[1])) for name, one in needed.items()}
            novelty = 0 if task.novelty_bytes is None else novelty_memory(seen.pooled, outputs=seen.outputs)
            own = choose_groups(needed, budget=max_memory, stays=place.stays, novelty=novelty)
        # processes have batches of their own, but must fit the same layers at a time: the most cautious decides
        every = [one for one in processes.gather(own) if one is not None]
    return max(every, key=len, default=[list(task.layers)])


def _fit_of(fit: Fit, names: Collection[str]) -> Fit:
    """Return the part of a fit that is of some layers."""
    curvature = {name: one for name, one in fit.curvature.items() if name in names}
    unreached = {name: reason for name, reason in fit.unreached.items() if name in names}
    return replace(fit, curvature=curvature, unreached=unreached)


def _check_same_data(fits: Sequence[Fit]) -> None:
    first, last = fits[0].summary.num_examples, fits[-1].summary.num_examples
    if first != last:
        raise ValueError(
            f"the loader must give the same data to every group of layers, got {first} examples, then {last}; pass a "
            "DataLoader or a list."
        )


def _joined(fits: Sequence[Fit], *, order: Iterable[str]) -> Fit:
    curvature = {name: one for fit in fits for name, one in fit.curvature.items()}
    unreached = {name: reason for fit in fits for name, reason in fit.unreached.items()}
    summary = next(fit.summary for fit in fits if fit.curvature)  # of a group that was reached, and read to the end
    novelty = next((fit.novelty for fit in fits if fit.novelty is not None), None)
    odd = frozenset().union(*(fit.odd for fit in fits))
    return Fit({name: curvature[name] for name in order if name in curvature}, summary, unreached, novelty, odd)


def _first_batch(loader: Iterable[Any], seed: int, place: Placement) -> Batch | None:
    """Return the first batch with examples; None where there is none."""
    if isinstance(loader, Iterator):
        raise ValueError(
            "with max_memory the data may be read several times, and the loader is an iterator; pass list(loader)."
        )
    with isolated(seed, loader=loader):
        for raw in loader:
            batch = read_batch(raw, place.device)
            if batch_size(batch):
                return batch
    return None
