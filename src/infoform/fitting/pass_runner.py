"""Carries out one pass of a fit's plan: bases that it measures along, the data, and the sums of all processes."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass

from infoform.common.files import under
from infoform.common.processes import Processes
from infoform.common.progress import known_length
from infoform.fitting.accumulate import GradientAccumulator
from infoform.fitting.chunks import ChunkLimits
from infoform.fitting.data_pass import DataPass
from infoform.fitting.example_selection import ExampleSelector
from infoform.fitting.fisher_gradients import FisherGradients
from infoform.fitting.fit_state import FitState
from infoform.fitting.fit_task import FitTask
from infoform.fitting.keeper import FitKeeper
from infoform.fitting.layer_check import LayerCheck
from infoform.fitting.layer_statistics import LayerStatistics
from infoform.fitting.pass_plan import PassPlan, Statistic
from infoform.fitting.reader import BatchReader
from infoform.fitting.reading import EveryExample, MeasuringSelected, Reading, RereadingSelected, SelectingExamples

Bar = Callable[[str, int | None], Callable[[int], None]]  # starts a progress bar and returns its tick


@dataclass(frozen=True)
class PassRunner:
    """What stays the same from pass to pass."""

    task: FitTask
    network: FisherGradients
    reader: BatchReader
    processes: Processes
    keeper: FitKeeper
    bar: Bar
    check: LayerCheck

    def run(self, plan: PassPlan, state: FitState, *, label: str) -> None:
        """Sum what a pass is to sum over the data of all processes, and take it into the state.

        Args:
            plan: What the pass sums.
            state: How far the fit has come.
            label: What the progress bar says.
        """
        self._find_bases(plan, state)
        limits = ChunkLimits.of(
            self.task.settings.chunk, model_bytes=self.network.capture.nbytes, single=self.network.single
        )
        sums = {name: state.statistics[name].sums(one, last=plan.rereads) for name, one in plan.layers.items()}
        accumulators = {name: GradientAccumulator(self.task.layers[name], one, limits) for name, one in sums.items()}
        reading = self._reading(plan, state)
        novelty = state.novelty if plan.scored else None  # that pass reads every example once
        data_pass = DataPass(
            plan,
            accumulators,
            network=self.network,
            reader=self.reader,
            reading=reading,
            check=self.check,
            novelty=novelty,
        )
        with self.keeper.refusing():
            state.go_on_with(data_pass.restore)
        loader = self.reader.loader
        with nullcontext() if novelty is None else novelty.watching():
            own = data_pass.run(
                check=state.check_same_batches,
                tick=self.bar(label, known_length(loader)),
                pause=lambda now: self.keeper.pause(lambda: state.snapshot(data_pass.state()), now=now),
            )
        selection = reading.selection()
        self.processes.check_parts(own.opening if self.reader.shard.stride == 1 else None)
        progress = own.of_all(self.processes.gather(own))
        if progress.examples == 0:
            raise ValueError(
                "the loader gave no examples; a fit needs at least one batch (was the loader read before?)."
            )
        finished = [one for of_layer in sums.values() for one in of_layer.finished]
        self.processes.add_up(finished, device=self.reader.device)
        if novelty is not None:
            novelty.gather(self.processes, device=self.reader.device)
        state.finish_pass(plan, progress, selection)

    def _find_bases(self, plan: PassPlan, state: FitState) -> None:
        """Find the bases that a pass measures along and that are not known yet, a part of them in each process."""
        measured = [name for name, one in plan.layers.items() if Statistic.PROJECTIONS in one.statistics]
        new = {name: state.statistics[name] for name in measured if not state.statistics[name].has_bases}
        if not new:
            return
        if isinstance(self.reader.loader, Iterator):
            raise ValueError(
                f"layer '{next(iter(new))}' is reached for the first time and needs a second pass, and the "
                "loader is an iterator; pass list(loader)."
            )
        owners = self.processes.owners({name: one.eigen_flops for name, one in new.items()})
        tick = self.bar("eigenvectors", len(new))
        for name, one in new.items():
            if owners[name] == self.processes.rank:
                one.find_bases()
            tick(1)
            self.keeper.stop_if_asked()
        self._spread(new, owners)
        self.keeper.next_pass(lambda: state.snapshot(({}, {})))

    def _spread(self, statistics: Mapping[str, LayerStatistics], owners: Mapping[str, int]) -> None:
        """Tell the other processes the bases that this one has found, and learn theirs."""
        if self.processes.count == 1:
            return
        found = {name: one.bases() for name, one in statistics.items() if owners[name] == self.processes.rank}
        own = {f"{name}..{key}": one for name, bases in found.items() for key, one in bases.items()}
        every = self.processes.spread(own, lambda name: owners[name.rsplit("..", 1)[0]], device=self.reader.device)
        for name, one in statistics.items():
            one.restore(under(every, f"{name}.."))

    def _reading(self, plan: PassPlan, state: FitState) -> Reading:
        if state.selection is None:
            selector = ExampleSelector(self.task.settings.basis_floor, self.processes.gather)
            return SelectingExamples(selector) if plan.selects else EveryExample()
        return RereadingSelected(state.selection) if plan.rereads else MeasuringSelected(state.selection)
