"""An experiment of the paper: its own page, written from the result, with its pictures inside.

A report knows no experiments: who makes one passes a function that finds them.
To give one charts that act, write a file with a function `sections`, and a line in `ACTING`.
"""

import base64
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from infoform.records.study_result import Result
from infoform.report import planes
from infoform.report.blocks import Block, Fold, Markup, Panel, Section, Table, Text
from infoform.report.inputs import Study
from infoform.report.words import MISSING, counted, number

ACTING: dict[str, Callable[[Result], list[Section]]] = {"uci-landscape": planes.sections}  # by experiment


class StudyPage(Protocol):
    """What a report asks of an experiment."""

    @property
    def summary(self) -> str:
        """Return what the experiment shows, in one line."""

    @property
    def reproduces(self) -> str:
        """Return which table or figure of the paper it is."""

    def page(self, result: Result) -> str:
        """Return the page of a result, in Markdown."""

    def charts(self, result: Result, folder: Path) -> None:
        """Draw the pictures of the page into a folder."""


FindExperiment = Callable[[str], StudyPage | None]  # by its name; None where there is none


def study_panel(study: Study, find_experiment: FindExperiment) -> Panel:
    """Return the panel of one experiment."""
    result = study.result
    experiment = find_experiment(result.experiment)
    if experiment is None:
        raise ValueError(
            f"'{study.path}' is of the experiment '{result.experiment}', which this infoform does not have; "
            "use the version that made it."
        )
    blocks: list[Block] = []
    acting: list[Section] = []
    if result.complete:
        blocks.append(Markup(_page(study, experiment)))
        acting = ACTING[result.experiment](result) if result.experiment in ACTING else []
    else:
        text = (
            f"{len(result.pieces)} of {counted(result.total, 'piece')} are done; run 'infoform reproduce' to its end."
        )
        blocks.append(Text(text, "warning"))
    settings = [(name, str(value)) for name, value in result.settings.items()]
    facts = [
        ("commit", result.commit or MISSING),
        ("seconds", f"{result.seconds:,.0f}"),
        ("peak memory, bytes", number(result.peak_memory_bytes)),
        *((name, version) for name, version in result.versions.items()),
    ]
    blocks.append(Fold("Settings and versions", [Table(("", ""), [*settings, *facts])]))
    says = f"{experiment.summary} Reproduces: {experiment.reproduces}."
    return Panel(study.name, says, [Section("Result", blocks), *acting])


def _page(study: Study, experiment: StudyPage) -> str:
    """Return the experiment's page as HTML, raw HTML in it escaped, pictures as data."""
    from markdown_it import MarkdownIt

    text = MarkdownIt("commonmark", {"html": False}).enable("table").render(experiment.page(study.result))
    with tempfile.TemporaryDirectory() as folder:
        experiment.charts(study.result, Path(folder))

        def inline(match: re.Match[str]) -> str:
            file = Path(folder) / Path(match[1]).name
            if not file.is_file():
                raise ValueError(f"the page of '{study.name}' shows '{match[1]}', which its charts do not draw.")
            return f'src="data:image/png;base64,{base64.b64encode(file.read_bytes()).decode()}"'

        text = re.sub(r'src="([^"]*)"', inline, text)
    text = re.sub(r"<(/?)h([1-4])>", lambda match: f"<{match[1]}h{int(match[2]) + 2}>", text)
    text = text.replace("<table>", '<div class="scroll" tabindex="0"><table>').replace("</table>", "</table></div>")
    return re.sub(r"<a [^>]*>(.*?)</a>", r"\1", text, flags=re.DOTALL)  # to pages that are not here
