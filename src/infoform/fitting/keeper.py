"""What happens to a fit between batches: it is written to a checkpoint every so often, or nothing is."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict

from infoform.common.files import under
from infoform.common.processes import Processes
from infoform.curvature.curvature import Fit, pack_curvature, unpack_curvature
from infoform.fitting.checkpoint import FINISHED, Checkpoint, Snapshot
from infoform.fitting.fit_task import FitTask
from infoform.fitting.placement import Placement
from infoform.likelihoods import DataSummary
from infoform.novelty.known_inputs import pack_known, unpack_known

Take = Callable[[], Snapshot]  # returns all that is needed to go on from here


class FitKeeper(ABC):
    """Is told how far a fit has come."""

    @abstractmethod
    def finished(self) -> Fit | None:
        """Return the fit if all processes have finished it before."""

    @abstractmethod
    def resume(self, restore: Callable[[Snapshot], None]) -> None:
        """Go on from where all processes can, if the fit was stopped before."""

    def refusing(self) -> AbstractContextManager[None]:
        """Turn what values of a checkpoint lead to into a BadFileError, where the fit went on from one."""
        return nullcontext()

    @abstractmethod
    def pause(self, take: Take, *, now: bool = False) -> None:
        """Save the fit after a batch, where it is time to or `now`, and stop it where that was asked for."""

    @abstractmethod
    def stop_if_asked(self) -> None:
        """Stop the fit where that was asked for; it goes on from what was saved last."""

    @abstractmethod
    def next_pass(self, take: Take) -> None:
        """Save the fit before its second pass, and forget the first."""

    @abstractmethod
    def finish(self, fit: Fit) -> None:
        """Save what is finished, where others have to be waited for."""


class ForgettingKeeper(FitKeeper):
    """Saves nothing."""

    def finished(self) -> Fit | None:
        return None

    def resume(self, restore: Callable[[Snapshot], None]) -> None:
        return None

    def pause(self, take: Take, *, now: bool = False) -> None:
        return None

    def stop_if_asked(self) -> None:
        return None

    def next_pass(self, take: Take) -> None:
        return None

    def finish(self, fit: Fit) -> None:
        return None


class CheckpointKeeper(FitKeeper):
    """Saves the fit of this process in a checkpoint, in step with those of the other processes."""

    def __init__(self, checkpoint: Checkpoint, processes: Processes, place: Placement) -> None:
        self._checkpoint, self._processes, self._place = checkpoint, processes, place
        self._resumed: int | None = None  # the pass that the fit went on from

    def finished(self) -> Fit | None:
        checkpoint = self._checkpoint
        if checkpoint.lasts and all(stage == FINISHED for stage in self._processes.gather(checkpoint.stage())):
            saved = checkpoint.read(FINISHED, device=self._place.target)
            with checkpoint.refusing(FINISHED):
                return _unpack_fit(saved, self._place)
        return None

    def resume(self, restore: Callable[[Snapshot], None]) -> None:
        # a process may have been stopped before it wrote what others did: all go on from what all have
        own = self._checkpoint.stage()
        stage = min(self._processes.gather(own))
        if own > stage:
            self._checkpoint.read(own, device=self._place.device)  # which refuses to have another fit's file removed
        self._checkpoint.remove(*range(stage + 1, FINISHED + 1))
        if stage:
            saved = self._checkpoint.read(stage, device=self._place.device)
            self._resumed = stage
            with self.refusing():
                restore(saved)

    def refusing(self) -> AbstractContextManager[None]:
        return nullcontext() if self._resumed is None else self._checkpoint.refusing(self._resumed)

    def pause(self, take: Take, *, now: bool = False) -> None:
        self._checkpoint.pause(take, now=now)

    def stop_if_asked(self) -> None:
        self._checkpoint.stop_if_asked()

    def next_pass(self, take: Take) -> None:
        self._checkpoint.pause(take, now=True)
        self._processes.gather(None)  # all have written
        self._checkpoint.remove(1)

    def finish(self, fit: Fit) -> None:
        if self._checkpoint.lasts:
            self._checkpoint.write(_pack_fit(fit))
            self._processes.gather(None)  # all have written


@contextmanager
def keeping(
    checkpoint: Checkpoint | None, task: FitTask, previous: Fit | None, processes: Processes
) -> Iterator[FitKeeper]:
    """Give the keeper of a fit, after a look whether all processes have the same task."""
    if checkpoint is None and processes.count == 1:
        yield ForgettingKeeper()
        return
    identity = task.identity(previous)
    processes.check_same(identity)
    if checkpoint is None:
        yield ForgettingKeeper()
        return
    with checkpoint.open(identity):
        yield CheckpointKeeper(checkpoint, processes, task.place)


def _pack_fit(fit: Fit) -> Snapshot:
    packed = {name: pack_curvature(one) for name, one in fit.curvature.items()}
    tensors = {f"{name}..{key}": value for name, (own, _) in packed.items() for key, value in own.items()}
    curvature = {name: settings for name, (_, settings) in packed.items()}
    values = {
        "curvature": curvature,
        "summary": asdict(fit.summary),
        "unreached": dict(fit.unreached),
        "odd": sorted(fit.odd),
    }
    if fit.novelty is not None:
        known, values["novelty"] = pack_known(fit.novelty)
        tensors |= {f"novelty//{key}": value for key, value in known.items()}
    return Snapshot(FINISHED, tensors, values)


def _unpack_fit(saved: Snapshot, place: Placement) -> Fit:
    curvature = {
        name: place.keep(unpack_curvature(under(saved.tensors, f"{name}.."), settings))
        for name, settings in saved.values["curvature"].items()
    }
    novelty = None
    if "novelty" in saved.values:
        novelty = unpack_known(under(saved.tensors, "novelty//"), saved.values["novelty"])
    values = saved.values
    return Fit(
        curvature, DataSummary(**values["summary"]), values["unreached"], novelty, frozenset(values.get("odd", ()))
    )
