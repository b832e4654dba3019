"""What all charts share: colours, axes, and the way from plotly's figures to what plotly.js takes.

Figures carry the colours of the light page; `DARK` says what each becomes on the dark one.
"""

import html
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

INK, MUTED, GRID, PAPER = "#1c2530", "#5b6775", "#e2e6eb", "#ffffff"
POSTERIOR, PLAIN = "#2456d6", "#8a94a1"
KNOWN, UNKNOWN = "#0b8a7c", "#d9541e"
GOOD = "#2e7d32"
IDEAL = "#a3adb8"
SERIES = ("#2456d6", "#d9541e", "#0b8a7c", "#9333b8", "#b38600", "#c2266b", "#4d6a12", "#0e7fb8")
DARK = {
    INK: "#e6eaf0",
    MUTED: "#a3afbd",
    GRID: "#303a47",
    PAPER: "#171d25",
    POSTERIOR: "#7aa5ff",
    PLAIN: "#8792a0",
    KNOWN: "#3fcab8",
    UNKNOWN: "#ff9460",
    GOOD: "#7fcf83",
    IDEAL: "#66727f",
    "#9333b8": "#cf94ea",
    "#b38600": "#e5bf4a",
    "#c2266b": "#f587b2",
    "#4d6a12": "#a9c96a",
    "#0e7fb8": "#6cc3ef",
}
HEIGHT = 360
SCALE = [[0, "#12306b"], [0.35, "#2f6fd0"], [0.7, "#9cc3ea"], [1, "#eef4fb"]]  # small is dark


def figure(traces: Sequence[Any], *, height: int = HEIGHT, **layout: Any) -> dict[str, Any]:
    """Return the figure of these traces as plotly.js takes it; plotly checks every name and value on the way."""
    from plotly import graph_objects

    common: dict[str, Any] = {
        "height": height,
        "margin": {"l": 64, "r": 16, "t": 16, "b": 56},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", "size": 13, "color": INK},
        "hoverlabel": {"bgcolor": PAPER, "bordercolor": GRID, "font": {"color": INK, "size": 13}, "align": "left"},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "xanchor": "left", "yanchor": "bottom"},
        "dragmode": "zoom",
    }
    if any(getattr(trace, "showlegend", None) is not False and trace.name for trace in traces):
        common["margin"] = {**common["margin"], "t": 44}
    made = graph_objects.Figure(data=list(traces), layout={**common, **layout})
    content: dict[str, Any] = made.to_plotly_json()
    content["layout"].pop("template", None)
    return content


def axis(title: str, **settings: Any) -> dict[str, Any]:
    """Return an axis with its title."""
    quiet = {"gridcolor": GRID, "linecolor": GRID, "zerolinecolor": GRID, "tickcolor": GRID, "automargin": True}
    return {
        "title": {"text": title, "font": {"color": MUTED, "size": 13}, "standoff": 10},
        "showline": True,
        **quiet,
        **settings,
    }


def log_axis(title: str, **settings: Any) -> dict[str, Any]:
    """Return a logarithmic axis."""
    return axis(title, type="log", **{"exponentformat": "power", "tickfont": {"size": 11}, **settings})


def names_axis(**settings: Any) -> dict[str, Any]:
    """Return an axis of names, one bar each."""
    return axis("", type="category", dtick=1, showgrid=False, **settings)


def label(text: str, longest: int = 28) -> str:
    """Return a user's text as plotly shows it literally: plotly reads some HTML; the end of a long one is kept."""
    short = text if len(text) <= longest else "…" + text[1 - longest :]
    return html.escape(short, quote=False)


def bars(edges: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return the middles and the widths of the bars between these edges."""
    middles = [(low + high) / 2 for low, high in pairwise(edges)]
    return middles, [high - low for low, high in pairwise(edges)]


def series(position: int, count: int) -> str:
    """Return a colour for one of several things, by their order."""
    return SERIES[position % len(SERIES)] if count else INK
