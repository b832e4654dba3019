"""A fit within a budget of memory: layers in groups, each with passes of its own over the data.

Neither a layer's gradients nor its random numbers depend on which other layers are looked at, so that the result is
that of one fit of all layers. What a group takes is estimated from the first batch (demand.py).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from infoform.common.processes import Processes
from infoform.common.randomness import isolated
from infoform.curvature.curvature import Fit
from infoform.curvature.merge import merge_fits
from infoform.curvature.request import FitSettings, StatisticsRequest
from infoform.fitting.checkpoint import Checkpoint
from infoform.fitting.fit import UnreachedError, fit_curvature
from infoform.fitting.fit_memory import choose_groups, layer_memory
from infoform.fitting.placement import Placement
from infoform.likelihoods import Likelihood
from infoform.network.batches import Batch, batch_size, read_batch
from infoform.network.layer import Layer
from infoform.network.probe import probe_batch


def fit_in_groups(
    model: nn.Module,
    loader: Iterable[Any],
    likelihood: Likelihood,
    layers: Mapping[str, Layer],
    *,
    max_memory: int,
    request: StatisticsRequest,
    settings: FitSettings,
    place: Placement,
    previous: Fit | None = None,
    checkpoint: Checkpoint | None = None,
    progress: bool = True,
) -> Fit:
    """As `fit_curvature`, within about so many bytes on the device of the work, beside model and data."""
    processes = Processes.running()
    with processes.together():
        batch = _first_batch(loader, settings.seed, place)
        own = None
        if batch is not None:
            given = layer_memory(layers, probe_batch(model, batch, device=place.device), request, settings)
            if previous is not None:  # what is measured and what it is merged to are there together
                given = {name: replace(one, sums=(one.sums[0], 2 * one.sums[1])) for name, one in given.items()}
            own = choose_groups(given, budget=max_memory, stays=place.stays)
        # processes have batches of their own, but must fit the same layers at a time: the most cautious decides
        every = [one for one in processes.gather(own) if one is not None]
    groups = max(every, key=len, default=[list(layers)])
    how: dict[str, Any] = {"request": request, "settings": settings, "place": place, "progress": progress}
    if len(groups) == 1:
        return fit_curvature(model, loader, likelihood, layers, previous=previous, checkpoint=checkpoint, **how)
    parts: list[Checkpoint | None] = [None] * len(groups)
    if checkpoint is not None:
        parts = [checkpoint.group(number) for number, _ in enumerate(groups, start=1)]
    fits: list[Fit] = []
    missed = 0
    for number, (names, part) in enumerate(zip(groups, parts, strict=True), start=1):
        label = f"group {number} of {len(groups)}: "
        group = {name: layer for name, layer in layers.items() if name in names}
        before = None
        if previous is not None:
            before = replace(previous, curvature={name: previous.curvature[name] for name in group})
        try:
            fits.append(
                fit_curvature(model, loader, likelihood, group, previous=before, checkpoint=part, label=label, **how)
            )
        except UnreachedError as error:
            missed += 1
            if missed == len(groups):
                raise
            fits.append(error.fit if before is None else merge_fits(before, error.fit))
        if fits[-1].summary.num_examples != fits[0].summary.num_examples:
            raise ValueError(
                f"the loader must give the same data to every group of layers, got {fits[0].summary.num_examples} "
                f"examples, then {fits[-1].summary.num_examples}; pass a DataLoader or a list."
            )
    for part in parts:
        if part is not None:
            part.clear()
    curvature = {name: one for fit in fits for name, one in fit.curvature.items()}
    unreached = {name: reason for fit in fits for name, reason in fit.unreached.items()}
    summary = next(fit.summary for fit in fits if fit.curvature)  # of a group that was reached, and read to the end
    return Fit({name: curvature[name] for name in layers if name in curvature}, summary, unreached)


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
