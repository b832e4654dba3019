"""A report: what verbs and experiments wrote, laid out as one HTML page; computes nothing."""

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from infoform.report.blocks import Panel
from infoform.report.compare import compare
from infoform.report.inputs import Run, read_inputs
from infoform.report.page import MARK, render
from infoform.report.sections import SECTIONS
from infoform.report.study import FindExperiment, study_panel
from infoform.version import __version__


def make_report(
    paths: Sequence[Path],
    *,
    title: str | None = None,
    find_experiment: FindExperiment = lambda name: None,
) -> str:
    """Return the page of these runs and results, as HTML.

    Args:
        paths: folders of runs, folders of results of experiments, or single JSON files.
        title: of the page.
        find_experiment: returns the experiment of a name, whose page a result of it becomes; None where there is none.

    Raises:
        ValueError: where there is nothing to report, or a file is damaged or something else, in one sentence.

    Example:
        >>> page = make_report([Path("runs/a")])  # doctest: +SKIP
    """
    inputs = read_inputs(paths)
    runs = [each for each in inputs if isinstance(each, Run)]
    panels = [compare(runs)] if len(runs) > 1 else []
    panels += [run_panel(each) if isinstance(each, Run) else study_panel(each, find_experiment) for each in inputs]
    made = f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC by infoform {__version__}"
    return render(panels, title=title or "How sure is the network?", made=made)


def run_panel(run: Run) -> Panel:
    """Return the panel of one run: all its sections."""
    sections = [section for make in SECTIONS.values() if (section := make(run)) is not None]
    fit = run.fit
    about = run.task if fit is None else f"{run.task}, structure {fit.settings.structure}, prior {fit.prior}"
    return Panel(run.name, about, sections)


__all__ = ["MARK", "make_report"]
