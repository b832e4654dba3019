"""An experiment of the paper: its own page, written from the result, with its pictures inside.

To give one charts that act, write a file with a function `sections`, and a line in `ACTING`.
"""

import base64
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from infoform.records.study_result import Result
from infoform.report import planes
from infoform.report.blocks import Block, Fold, Markup, Panel, Section, Table, Text
from infoform.report.inputs import Study
from infoform.report.words import MISSING, counted, number

ACTING: dict[str, Callable[[Result], list[Section]]] = {"uci-landscape": planes.sections}  # by experiment


def study_panel(study: Study) -> Panel:
    """Return the panel of one experiment."""
    from infoform.experiments import EXPERIMENTS, get_experiment

    result = study.result
    if result.experiment not in EXPERIMENTS:
        raise ValueError(
            f"'{study.path}' is of the experiment '{result.experiment}', which this infoform does not have; "
            "use the version that made it."
        )
    experiment = get_experiment(result.experiment)
    blocks: list[Block] = []
    acting: list[Section] = []
    if result.complete:
        blocks.append(Markup(_page(study)))
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


def _page(study: Study) -> str:
    """Return the experiment's page as HTML, raw HTML in it escaped, pictures as data."""
    from markdown_it import MarkdownIt

    from infoform.experiments import get_experiment

    experiment = get_experiment(study.result.experiment)
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
