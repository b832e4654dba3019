"""A fit: one or two passes over the data, and the curvature of every layer out of them.

Pass 1 sums the moments whose eigenvectors are the bases; pass 2 sums what is measured in those bases, and on the
diagonal. A fit that needs no basis takes one pass. Both passes see the same sampled labels.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import nn

from infoform.common import files as storage
from infoform.common.files import under
from infoform.common.processes import Processes
from infoform.common.progress import progress_bar
from infoform.curvature.curvature import Fit, pack_curvature, unpack_curvature
from infoform.curvature.merge import merge_fits
from infoform.curvature.request import FitSettings, StatisticsRequest, rereads_selected, selects_examples
from infoform.fitting.checkpoint import FINISHED, Checkpoint, Snapshot
from infoform.fitting.data_pass import DataPass, PassProgress, PassRequest, check_independence
from infoform.fitting.example_selection import ExampleSelector
from infoform.fitting.layer_sums import LayerStatistics
from infoform.fitting.placement import Placement
from infoform.likelihoods import DataSummary, Likelihood
from infoform.network.capture import capturing
from infoform.network.layer import Layer
from infoform.network.sharding import shard_of


def fit_curvature(
    model: nn.Module,
    loader: Iterable[Any],
    likelihood: Likelihood,
    layers: Mapping[str, Layer],
    *,
    request: StatisticsRequest,
    settings: FitSettings,
    previous: Fit | None = None,
    checkpoint: Checkpoint | None = None,
    place: Placement | None = None,
    progress: bool = True,
    label: str = "",
) -> Fit:
    """Collect the wanted statistics of these layers, alone or added to a previous fit in the bases of that."""
    processes, place = Processes.running(), place or Placement.of(model)
    seen = 0 if previous is None else previous.summary.num_examples
    passes = 2 if request.bases and previous is None else 1
    part = settings.basis_data if passes > 1 else 1.0
    sifted = passes > 1 and selects_examples(request, settings)
    again = passes > 1 and rereads_selected(request, settings)
    batches = len(loader) if isinstance(loader, Sized) else None
    with (
        processes.together(),
        progress_bar(progress and processes.rank == 0) as bar,
        capturing(model, layers, autocast=settings.autocast, device=place.device) as capture,
        ExitStack() as opened,
    ):
        check_independence(model)
        if settings.basis_data < 1 and (request.factors or "activation" in request.bases):
            raise ValueError(
                f"basis_data below 1 is for gradient bases alone, got {settings.basis_data} for a fit that also "
                "collects Kronecker factors; leave it out, or use structure='inf' or 'efb' with statistics='needed'."
            )
        if passes > 1 and isinstance(loader, Iterator):  # asking iter() would start workers and draw a seed
            raise ValueError(
                "the loader must be one that can be read twice (a DataLoader or a list), got an iterator; "
                "pass list(loader), or use structure='diag' or 'kfac', which need one pass."
            )
        if checkpoint is not None or processes.count > 1:
            identity = _identity(model, likelihood, layers, request, settings, previous)
            processes.check_same(identity)
            if checkpoint is not None:
                opened.enter_context(checkpoint.open(identity))
                if checkpoint.lasts and all(one == FINISHED for one in processes.gather(checkpoint.stage())):
                    return _unpack_fit(checkpoint.read(FINISHED, device=place.target), place)
        data = DataPass(
            capture,
            loader,
            likelihood,
            layers,
            settings.fisher,
            settings.fisher_samples,
            settings.seed,
            chunk=settings.chunk,
            seen=seen,
            shard=shard_of(loader, processes, seed=settings.seed),
            sieve=ExampleSelector(settings.basis_floor, processes.gather) if sifted else None,
        )
        statistics = {name: LayerStatistics(layer, request, settings) for name, layer in layers.items()}
        for name, before in {} if previous is None else previous.curvature.items():
            statistics[name].keep(place.fetch(before))
        course = _Course(data, statistics, checkpoint, processes)
        course.resume()
        once = {name: one.squares() for name, one in statistics.items()} if again else None
        if course.first is None:
            sums = {name: one.first_pass(part < 1, sifted) for name, one in statistics.items()}
            of_chosen = {name: one.moments() for name, one in statistics.items()} if sifted else None
            tick = bar(f"{label}pass 1 of {passes}", batches)
            tally = course.run(PassRequest(sums, of_chosen, once, share=part, scored=part == 1), tick)
            # a second pass over more of the data may reach more layers, too late for a basis
            course.first = _FirstPass(tally.summary(), tally.digest, frozenset(data.reached))
        summary, reached = course.first.summary, course.first.reached
        unreached = {name: _why_unreached(name in data.called) for name in layers if name not in reached}
        if len(unreached) == len(layers):
            raise UnreachedError(Fit({}, summary, unreached))
        # layers that an earlier fit did not reach get their bases from the data that does
        fresh = {
            name: one
            for name, one in statistics.items()
            if name in reached and (previous is None or name not in previous.curvature)
        }
        if request.bases and fresh:
            if isinstance(loader, Iterator):
                raise ValueError(
                    f"layer '{next(iter(fresh))}' is reached for the first time and needs a second pass, and the "
                    "loader is an iterator; pass list(loader)."
                )
            if not course.decomposed:
                course.decompose(fresh, bar(f"{label}eigenvectors", len(fresh)))
            sums = {
                name: one.second_pass(part < 1, sifted) if name in fresh else [] for name, one in statistics.items()
            }
            tick = bar(f"{label}pass 2 of 2", batches)
            of_chosen = {name: one.projections() for name, one in fresh.items()} if sifted and not again else None
            tally = course.run(PassRequest(sums, of_chosen, once, again=again, scored=part < 1), tick)
            course.check_same_data(tally, whole=part == 1)
            summary = tally.summary() if part < 1 else summary
        data.capture.calls.clear()
        numbers = range(seen, seen + summary.num_examples)
        curvature = {}
        for name in [name for name in layers if name in reached]:
            finished = statistics.pop(name).finish(numbers)
            curvature[name] = place.keep(finished) if previous is None else finished
        fit = Fit(curvature, summary, unreached)
        if previous is not None:
            fit = merge_fits(previous, fit, fetch=place.fetch, keep=place.keep)
        if checkpoint is not None and checkpoint.lasts:
            checkpoint.write(_pack_fit(fit))
            processes.gather(None)  # all have written
    return fit


class UnreachedError(ValueError):
    """No gradient came back to any of the layers; `fit` has the reasons and the data's summary."""

    def __init__(self, fit: Fit) -> None:
        name, reason = next(iter(fit.unreached.items()))
        super().__init__(
            "a gradient must reach at least one layer, and none did "
            f"('{name}': {reason}); check for torch.no_grad() in the model."
        )
        self.fit = fit


@dataclass(frozen=True)
class _FirstPass:
    """What the second pass must know of the first."""

    summary: DataSummary
    digest: int
    reached: frozenset[str]


@dataclass
class _Course:
    """Where a fit is; written to its checkpoint after a batch, and read from it at the start."""

    data: DataPass
    statistics: Mapping[str, LayerStatistics]
    checkpoint: Checkpoint | None
    processes: Processes
    first: _FirstPass | None = None  # known when the first pass is over
    decomposed: tuple[str, ...] = ()  # layers that have their bases; some, in the second pass
    resumed: bool = False

    def resume(self) -> None:
        """Go on where an earlier process was stopped, if one was."""
        if self.checkpoint is None:
            return
        self.data.between = self._pause
        # a process may have been stopped before it wrote what others did: all go on from what all have
        own = self.checkpoint.stage()
        stage = min(self.processes.gather(own))
        if own > stage:
            self.checkpoint.read(own, device=self._device)  # which refuses to have another fit's file removed
        self.checkpoint.remove(*range(stage + 1, FINISHED + 1))
        if stage == 0:
            return
        saved = self.checkpoint.read(stage, device=self._device)
        self.data.restore(saved.tensors, saved.values["data"])
        self.decomposed = tuple(saved.values["decomposed"])
        if saved.values["first"] is not None:
            known = saved.values["first"]
            self.first = _FirstPass(DataSummary(**known["summary"]), known["digest"], frozenset(known["reached"]))
        for name, one in self.statistics.items():
            one.restore(under(saved.tensors, f"sums/{name}.."), decomposed=name in self.decomposed)
        self.resumed = True

    def run(self, sought: PassRequest, tick: Callable[[int], None]) -> PassProgress:
        """Read this process' data, and return what is known of that of all.

        The sums are over all of it, too, but for those `once`, which are when they are read `again`.
        """
        own = self.data.run(sought, tick)
        self.processes.check_parts(own.opening if self.data.shard.stride == 1 else None)
        tallies: list[PassProgress] = self.processes.gather(own)
        examples = sum(one.examples for one in tallies)
        if examples == 0:
            raise ValueError(
                "the loader gave no examples; a fit needs at least one batch (was the loader read before?)."
            )
        finished = (sought.sums, sought.of_chosen or {}, (sought.once or {}) if sought.again else {})
        every = [one for given in finished for of_layer in given.values() for one in of_layer]
        self.processes.add_up(every, device=self._device)
        for called, reached in self.processes.gather((self.data.called, self.data.reached)):
            self.data.called |= called
            self.data.reached |= reached
        return replace(
            own,
            examples=examples,
            num_outputs=max(one.num_outputs for one in tallies),
            log_likelihood=sum(one.log_likelihood for one in tallies),
            labelled=all(one.labelled for one in tallies),
        )

    def decompose(self, fresh: Mapping[str, LayerStatistics], tick: Callable[[int], None]) -> None:
        """Find the bases of these layers, a part of them in each process."""
        owners = self.processes.owners({name: one.cost for name, one in fresh.items()})
        for name, one in fresh.items():
            if owners[name] == self.processes.rank:
                one.decompose()
            tick(1)
            if self.checkpoint is not None:
                self.checkpoint.stop_if_asked()
        if self.processes.count > 1:
            found = {name: fresh[name].bases() for name in fresh if owners[name] == self.processes.rank}
            own = {f"{name}..{key}": one for name, bases in found.items() for key, one in bases.items()}
            every = self.processes.spread(own, lambda name: owners[name.rsplit("..", 1)[0]], device=self._device)
            for name, one in fresh.items():
                one.restore(under(every, f"{name}.."), decomposed=True)
        self.decomposed = tuple(fresh)
        if self.checkpoint is not None:
            self._pause(True)
            self.processes.gather(None)  # all have written
            self.checkpoint.remove(1)

    def check_same_data(self, again: PassProgress, *, whole: bool) -> None:
        """Raise if the second pass saw other data than the first, of which it may have seen a part."""
        assert self.first is not None
        before = self.first.summary.num_examples
        if whole and again.examples != before:
            raise ValueError(
                f"the loader must give the same data in both passes, got {before} examples, then "
                f"{again.examples}; pass a DataLoader or a list."
            )
        if self.resumed and again.digest != self.first.digest:
            raise ValueError(
                "the loader must give the same data as before the fit was stopped, and the second pass saw others than "
                "the first; use one whose order is reproducible, or delete the checkpoint to start again."
            )

    @property
    def _device(self) -> torch.device:
        return self.data.capture.device

    def _pause(self, now: bool) -> None:
        assert self.checkpoint is not None
        self.checkpoint.pause(self._snapshot, now=now)

    def _snapshot(self) -> Snapshot:
        tensors, values = self.data.state()
        for name, one in self.statistics.items():
            tensors |= {f"sums/{name}..{key}": value for key, value in one.state().items()}
        first = None if self.first is None else asdict(self.first) | {"reached": sorted(self.first.reached)}
        saved = {"data": values, "first": first, "decomposed": list(self.decomposed)}
        return Snapshot(2 if self.decomposed else 1, tensors, saved)


def _identity(
    model: nn.Module,
    likelihood: Likelihood,
    layers: Mapping[str, Layer],
    request: StatisticsRequest,
    settings: FitSettings,
    previous: Fit | None,
) -> dict[str, Any]:
    """Return what tells this fit from others, by names that an error can use; the data are told by their digest."""
    identity = {f"parameter '{name}'": storage.describe(value) for name, value in model.named_parameters()}
    identity |= {f"buffer '{name}'": storage.describe(value) for name, value in model.named_buffers()}
    known: dict[str, Any] = {**identity, "likelihood": [likelihood.name, likelihood.settings()]}
    known |= {f"layer '{name}'": list(layer.shape) for name, layer in layers.items()}
    known |= {name: str(value) if name == "autocast" else value for name, value in asdict(settings).items()}
    known["bases"] = sorted(request.bases)
    for name, value in asdict(request).items():
        known[f"statistics '{name}'"] = sorted(value) if isinstance(value, frozenset) else value
    known["the fit before"] = None if previous is None else _digest(previous)
    return known


def _pack_fit(fit: Fit) -> Snapshot:
    """Return all of a fit, for a file."""
    packed = {name: pack_curvature(one) for name, one in fit.curvature.items()}
    tensors = {f"{name}..{key}": value for name, (own, _) in packed.items() for key, value in own.items()}
    curvature = {name: settings for name, (_, settings) in packed.items()}
    values = {"curvature": curvature, "summary": asdict(fit.summary), "unreached": dict(fit.unreached)}
    return Snapshot(FINISHED, tensors, values)


def _unpack_fit(saved: Snapshot, place: Placement) -> Fit:
    curvature = {
        name: place.keep(unpack_curvature(under(saved.tensors, f"{name}.."), settings))
        for name, settings in saved.values["curvature"].items()
    }
    return Fit(curvature, DataSummary(**saved.values["summary"]), saved.values["unreached"])


def _digest(fit: Fit) -> str:
    digest = zlib.crc32(repr(fit.summary).encode())
    for name, one in fit.curvature.items():
        tensors, settings = pack_curvature(one)
        told = {key: storage.describe(value) for key, value in tensors.items()}
        digest = zlib.crc32(repr((name, settings, told)).encode(), digest)
    return f"{digest:08x}"


def _why_unreached(called: bool) -> str:
    if called:
        return "no gradient reached it during the fit: its output does not influence the model's outputs"
    return "its forward was never called during the fit"
