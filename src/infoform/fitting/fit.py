"""A fit: passes over the data, and the curvature of every layer out of them.

The plan of a fit (pass_plan.py) is folded by one loop. Checkpoints, several processes and an earlier fit to add to are
around the loop, not in it. All passes see the same sampled labels.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from infoform.common.processes import Processes
from infoform.common.progress import progress_bar
from infoform.curvature.curvature import Fit
from infoform.curvature.merge import merge_fits
from infoform.fitting.checkpoint import Checkpoint
from infoform.fitting.fisher_gradients import FisherGradients, check_independence
from infoform.fitting.fit_state import FitState, UnreachedError
from infoform.fitting.fit_task import FitTask
from infoform.fitting.keeper import keeping
from infoform.fitting.layer_check import LayerCheck
from infoform.fitting.pass_plan import PassPlan, plan_passes
from infoform.fitting.pass_runner import PassRunner
from infoform.fitting.reader import BatchReader
from infoform.fitting.recall import RecallingCapture
from infoform.network.capture import capturing
from infoform.network.sharding import shard_of

__all__ = ["FitTask", "UnreachedError", "fit_curvature"]


def fit_curvature(
    task: FitTask,
    loader: Iterable[Any],
    *,
    previous: Fit | None = None,
    checkpoint: Checkpoint | None = None,
    progress: bool = True,
    label: str = "",
) -> Fit:
    """Collect the statistics of some layers.

    Args:
        task: Model, likelihood and layers, what is asked for, and how and where it is measured.
        loader: The data; what bases are found from is read twice.
        previous: A fit whose data this one is added to, in the bases of that fit.
        checkpoint: Where the fit is saved every so often, and goes on from.
        progress: Whether progress bars are shown.
        label: What the bars say first.

    Returns:
        The curvature of every layer that a gradient has reached, and why none has reached the others.

    Raises:
        UnreachedError: No gradient reaches any of the layers.
        ValueError: The data or the settings do not allow the fit; the message says what to do.
    """
    processes = Processes.running()
    plans = plan_passes(
        task.layers,
        task.request,
        task.settings,
        known=None if previous is None else previous.curvature,
        only_diagonal=[name for name, layer in task.layers.items() if layer.rule.only_diagonal],
    )
    with (
        processes.together(),
        progress_bar(progress and processes.rank == 0) as bar,
        capturing(task.model, task.layers, autocast=task.settings.autocast, device=task.place.device) as capture,
        ExitStack() as opened,
    ):
        _check(task, loader, passes=len(plans) if previous is None else 1)
        keeper = opened.enter_context(keeping(checkpoint, task, previous, processes))
        fit = keeper.finished()
        if fit is not None:
            return fit
        reader = BatchReader(
            loader,
            capture.device,
            task.settings.seed,
            shard_of(loader, processes, seed=task.settings.seed),
            first_number=_num_examples(previous),
        )
        recalling = RecallingCapture(capture, task.layers, limit=_keep_bytes(task, plans))
        network = FisherGradients(recalling, task.likelihood, task.settings.fisher, task.settings.fisher_samples)
        check = LayerCheck(task, may_change=previous is None)
        runner = PassRunner(
            task, network, reader, processes, keeper, lambda what, size: bar(f"{label}{what}", size), check
        )
        state = FitState.begin(task, previous)
        keeper.resume(state.restore)
        for number, plan in enumerate(plans, start=1):
            of_reached = plan.of(state.reached)
            if number > state.passes and of_reached.layers:
                runner.run(of_reached, state, label=f"pass {number} of {len(plans)}")
        capture.calls.clear()
        with keeper.refusing():
            fit = _result(task, state, previous)
        keeper.finish(fit)
    return fit


def _result(task: FitTask, state: FitState, previous: Fit | None) -> Fit:
    """Return what the passes have summed, alone or together with the fit before."""
    place = task.place
    if previous is None:
        return state.finish(task, None, place.keep)
    fit = state.finish(task, previous, lambda curvature: curvature)
    return merge_fits(previous, fit, fetch=place.fetch, keep=place.keep)


def _keep_bytes(task: FitTask, plans: Sequence[PassPlan]) -> int:
    """Return how much of what a last layer saw is kept, so that a second pass need not run the network."""
    needs_network = task.novelty_bytes is not None and not plans[0].scored  # then the second pass sees every layer
    return 0 if len(plans) == 1 or needs_network else task.keep_bytes


def _num_examples(previous: Fit | None) -> int:
    return 0 if previous is None else previous.summary.num_examples


def _check(task: FitTask, loader: Iterable[Any], *, passes: int) -> None:
    """Raise if the model, the settings or the loader do not allow the fit, which takes at least so many passes."""
    request, settings = task.request, task.settings
    check_independence(task.model)
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
