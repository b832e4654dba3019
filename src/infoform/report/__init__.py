"""A report: what verbs and experiments wrote, laid out as one HTML page; computes nothing."""

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from infoform.report.blocks import Panel
from infoform.report.compare import compare
from infoform.report.inputs import Run, Study, read_inputs
from infoform.report.page import MARK, render
from infoform.report.sections import SECTIONS
from infoform.report.study import study_panel
from infoform.version import __version__


def make_report(paths: Sequence[Path], *, title: str | None = None) -> str:
    """Return the page of these runs and results, as HTML."""
    found = read_inputs(paths)
    runs = [one for one in found if isinstance(one, Run)]
    panels = [compare(runs)] if len(runs) > 1 else []
    panels += [_guarded(one) for one in found]
    made = f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC by infoform {__version__}"
    return render(panels, title=title or "How sure is the network?", made=made)


def run_panel(run: Run) -> Panel:
    """Return the panel of one run: all its sections."""
    sections = [section for make in SECTIONS.values() if (section := make(run)) is not None]
    fit = run.fit
    about = f"{run.kind}, structure {fit['settings']['structure']}, prior {fit['prior']}" if fit else run.kind
    return Panel(run.name, about, sections)


def _guarded(one: Run | Study) -> Panel:
    try:
        return run_panel(one) if isinstance(one, Run) else study_panel(one)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(
            f"'{one.path}' was not written by this version of infoform, or is damaged "
            f"({type(error).__name__}: {error}); run its verbs again."
        ) from error


__all__ = ["MARK", "make_report"]
