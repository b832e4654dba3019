"""Panels to one HTML file: everything inside, nothing fetched, every text escaped by the template."""

import base64
import hashlib
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import Any

from infoform.report.blocks import Chart, Panel
from infoform.report.charts import DARK

MARK = "<!-- made by infoform report -->"


def render(panels: Sequence[Panel], *, title: str, made: str) -> str:
    """Return the page."""
    from jinja2 import Environment, PackageLoader
    from markupsafe import Markup as Safe
    from plotly.offline import get_plotlyjs

    files = resources.files("infoform.report") / "assets"
    library, script, style = (
        get_plotlyjs(),
        (files / "page.js").read_text("utf-8"),
        (files / "page.css").read_text("utf-8"),
    )
    first = "document.documentElement.classList.add('js');"
    environment = Environment(loader=PackageLoader("infoform.report", "assets"), autoescape=True, trim_blocks=True)
    template = environment.get_template("page.html.jinja")
    return template.render(
        mark=Safe(MARK),
        title=title,
        made=made,
        panels=panels,
        charts={id(chart): f"chart-{number}" for number, chart in enumerate(_charts(panels))},
        specs={f"chart-{number}": _spec(chart) for number, chart in enumerate(_charts(panels))},
        dark=DARK,
        style=Safe(style),
        first=Safe(first),
        script=Safe(script),
        library=Safe(library),
        hashes=[_hash(text) for text in (first, library, script)],
        key=id,
    )


def _charts(panels: Sequence[Panel]) -> Iterator[Chart]:
    for panel in panels:
        for section in panel.sections:
            yield from (block for block in section.blocks if isinstance(block, Chart))


def _spec(chart: Chart) -> dict[str, Any]:
    slider = chart.slider
    steps = [] if slider is None else [[step.label, step.sentence, step.traces] for step in slider.steps]
    return {"data": chart.figure["data"], "layout": chart.figure["layout"], "steps": steps}


def _hash(text: str) -> str:
    """Return what the page's security policy knows a script by: no other one may run."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"
