"""How far a fit has come: what the passes so far have left behind for the next one, and for the result."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor

from infoform.common.files import under
from infoform.common.json_values import from_json
from infoform.curvature.curvature import Curvature, Fit
from infoform.fitting.checkpoint import Snapshot
from infoform.fitting.example_selection import Selection
from infoform.fitting.fit_task import FitTask
from infoform.fitting.layer_statistics import LayerStatistics
from infoform.fitting.pass_plan import PassPlan
from infoform.fitting.reader import PassProgress
from infoform.likelihoods import DataSummary
from infoform.novelty.fit_sums import NoveltySums

PassState = tuple[Mapping[str, Tensor], Mapping[str, Any]]  # tensors and plain values of a pass that is under way


class UnreachedError(ValueError):
    """No gradient came back to any of the layers; `fit` has the reasons and the data's summary."""

    def __init__(self, fit: Fit) -> None:
        name, reason = next(iter(fit.unreached.items()))
        super().__init__(
            "a gradient must reach at least one layer, and none did "
            f"('{name}': {reason}); check for torch.no_grad() in the model."
            if name not in fit.odd
            else f"at least one layer must be able to have a posterior, and none is ('{name}': {reason}); change the "
            "model's forward there."
        )
        self.fit = fit


@dataclass
class FitState:
    """What is known between two passes."""

    layers: tuple[str, ...]
    statistics: dict[str, LayerStatistics]  # by layer
    passes: int = 0  # that are over
    first: PassProgress | None = None  # of the first pass, when it is over
    summary: DataSummary | None = None  # of the data
    selection: Selection | None = None  # of examples, where the first pass has selected some
    novelty: NoveltySums | None = None  # where it is collected
    odd: dict[str, str] = field(default_factory=dict)  # layers that are held fixed, and why
    resumed: bool = False  # whether the fit was stopped before, and went on
    _under_way: PassState | None = None  # where the pass was in which it was stopped

    @classmethod
    def begin(cls, task: FitTask, previous: Fit | None) -> "FitState":
        """Return the state before the first pass of a fit, or of an update of a previous fit."""
        statistics = {name: LayerStatistics(layer, task.request, task.settings) for name, layer in task.layers.items()}
        for name, before in {} if previous is None else previous.curvature.items():
            statistics[name].use_bases_of(task.place.fetch(before))
        novelty = None if task.novelty_bytes is None else NoveltySums(task.model, task.likelihood)
        return cls(tuple(task.layers), statistics, novelty=novelty)

    @property
    def reached(self) -> Collection[str]:
        """Return the layers that a gradient has reached in the first pass; before its end, all of them.

        A second pass over more of the data may reach more layers, too late for a basis.
        """
        return self.layers if self.first is None else self.first.reached - self.odd.keys()

    @property
    def unreached(self) -> dict[str, str]:
        """Return why no gradient has reached the other layers."""
        first = PassProgress() if self.first is None else self.first
        reasons = {name: _why_unreached(name, first) for name in self.layers if name not in self.reached}
        return reasons | self.odd

    def finish_pass(self, plan: PassPlan, progress: PassProgress, selection: Selection | None) -> None:
        """Take in what a pass of all processes has found, and raise if it read other data than the first."""
        if self.first is None:
            self.first = progress
        self.odd |= progress.odd
        self._check_same_data(plan, progress)
        if self.summary is None or plan.scored:
            self.summary = progress.summary()
        self.selection = self.selection if selection is None else selection
        self.passes += 1
        if len(self.unreached) == len(self.layers):
            raise UnreachedError(Fit({}, self.summary, self.unreached, odd=frozenset(self.odd)))

    def finish(self, task: FitTask, previous: Fit | None, keep: Callable[[Curvature], Curvature]) -> Fit:
        """Return the fit when all passes are over.

        Args:
            task: What was to be fitted.
            previous: The fit that this one adds to, if it is an update.
            keep: Puts the curvature of a layer to where it is to be.
        """
        assert self.summary is not None
        first_number = 0 if previous is None else previous.summary.num_examples
        numbers = range(first_number, first_number + self.summary.num_examples)
        names = [name for name in self.layers if name in self.reached]
        curvature = {name: keep(self.statistics.pop(name).finish(numbers)) for name in names}
        novelty = None
        if self.novelty is not None and task.novelty_bytes is not None:
            novelty = self.novelty.finish(
                budget=task.novelty_bytes, previous=None if previous is None else previous.novelty
            )
        return Fit(curvature, self.summary, self.unreached, novelty, frozenset(self.odd))

    def go_on_with(self, restore: Callable[[Mapping[str, Tensor], Mapping[str, Any]], None]) -> None:
        """Have a pass go on where it was stopped before, if it was."""
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            restore(*under_way)

    def snapshot(self, under_way: PassState) -> Snapshot:
        """Return all that is needed to go on from here, with the state of the pass that is under way."""
        tensors, values = dict(under_way[0]), dict(under_way[1])
        for name, one in self.statistics.items():
            tensors |= {f"sums/{name}..{key}": value for key, value in one.state().items()}
        values = {
            "pass": values,
            "first": None if self.first is None else self.first.state(),
            "summary": None if self.summary is None else asdict(self.summary),
        }
        if self.selection is not None:
            own, values["selection"] = self.selection.state()
            tensors |= {f"selection..{key}": value for key, value in own.items()}
        if self.novelty is not None:
            own, values["novelty"] = self.novelty.state()
            tensors |= {f"novelty..{key}": value for key, value in own.items()}
        return Snapshot(self.passes + 1, tensors, values)

    def restore(self, saved: Snapshot) -> None:
        """Go on from the snapshot of another object."""
        self.resumed, self.passes, values = True, saved.stage - 1, saved.values
        self.first = None if values["first"] is None else PassProgress.restored(values["first"])
        self.odd = {} if self.first is None else dict(self.first.odd)
        self.summary = None if values["summary"] is None else from_json(DataSummary, values["summary"], "summary")
        if self.first is not None and min(self.first.batches, self.first.examples) < 1:
            raise ValueError("a first pass that is over has read at least one example.")
        if self.summary is not None and min(self.summary.num_examples, self.summary.num_outputs) < 1:
            raise ValueError("a pass that is over has read at least one example with one output.")
        if "selection" in values:
            self.selection = Selection.restored(under(saved.tensors, "selection.."), values["selection"])
        if self.novelty is not None:
            self.novelty.restore(under(saved.tensors, "novelty.."), values["novelty"])
        self._under_way = (saved.tensors, values["pass"]) if values["pass"] else None
        for name, one in self.statistics.items():
            one.restore(under(saved.tensors, f"sums/{name}.."))

    def check_same_batches(self, progress: PassProgress) -> None:
        """Raise if a pass after the first reads other batches than the first, or in another order."""
        if self.first is None:
            return
        for place, (before, now) in enumerate(zip(self.first.marks, progress.marks, strict=False)):
            if before != now:
                how = f"the first {2**place} batches are others" if place else "the first batch is another"
                raise ValueError(self._other_data(how))

    def _check_same_data(self, plan: PassPlan, progress: PassProgress) -> None:
        assert self.first is not None
        if plan.checked and progress.examples != self.first.examples:
            raise ValueError(
                f"the loader must give the same data in both passes, got {self.first.examples} examples, then "
                f"{progress.examples}; pass a DataLoader or a list{self._restart()}."
            )
        if progress.digest != self.first.digest:
            raise ValueError(self._other_data(f"some of the {progress.batches} batches are others"))

    def _other_data(self, how: str) -> str:
        rule = "as before the fit was stopped" if self.resumed else "in every pass"
        return (
            f"the loader must give the same data in the same order {rule}, and in pass {self.passes + 1} {how}; take "
            "randomness that torch.manual_seed does not govern out of it (random transforms in persistent workers, the "
            f"time), pass list(loader), or use structure='diag' or 'kfac', which need one pass{self._restart()}."
        )

    def _restart(self) -> str:
        return ", or delete the checkpoint to start again" if self.resumed else ""


def _why_unreached(name: str, progress: PassProgress) -> str:
    if name in progress.without_gradient:
        return "it ran under torch.no_grad() during the fit"
    if name in progress.called:
        return "no gradient reached it during the fit: its output does not reach the model's outputs, or is detached"
    return "its forward was never called during the fit"
