"""Do its intervals hold the truth? Coverage of every level, and predictions with their intervals."""

from typing import Any

from infoform.records.evaluate import IntervalCoverage, PredictedPoints
from infoform.report.blocks import Block, Chart, Section, Table, Text
from infoform.report.charts import INK, PLAIN, POSTERIOR, UNKNOWN, axis, figure
from infoform.report.inputs import Run
from infoform.report.sections.calibration import SHARE, ideal_line, score_table
from infoform.report.words import number, percent


def section(run: Run) -> Section | None:
    result = run.evaluate
    if result is None or result.intervals is None:
        return None
    blocks: list[Block] = [
        Text(
            "For every prediction it gives an interval: an 80 % interval should hold the truth 8 times out of 10. On "
            "the dotted line it does; below it the intervals are too narrow, above it wider than they need be."
        ),
        coverage_chart(result.intervals.interval_coverage),
        _points_chart(result.intervals.points),
        score_table(result),
    ]
    return Section("Do its intervals hold the truth?", blocks)


def coverage_chart(coverage: IntervalCoverage) -> Chart:
    """Return the share of truths inside intervals of every level."""
    traces = [
        ideal_line(),
        coverage_trace(coverage.level, coverage.plain, "network alone", PLAIN),
        coverage_trace(coverage.level, coverage.found, "with uncertainty", POSTERIOR),
    ]
    layout = figure(
        traces,
        height=420,
        xaxis=axis("promised: level of the interval", **SHARE),
        yaxis=axis("found: truths inside", **SHARE),
    )
    rows = [
        (percent(level, 0), percent(plain), percent(inside))
        for level, plain, inside in zip(coverage.level, coverage.plain, coverage.found, strict=True)
    ]
    says = "The level of intervals against the share of test examples whose truth lies inside."
    return Chart("Promised and kept", says, layout, Table(("interval", "network alone", "with uncertainty"), rows))


def coverage_trace(levels: list[float], shares: list[float], name: str, colour: str) -> Any:
    from plotly import graph_objects

    return graph_objects.Scatter(
        x=levels,
        y=shares,
        mode="lines+markers",
        name=name,
        line={"color": colour, "width": 2},
        marker={"color": colour, "size": 7},
        hovertemplate="%{x:.0%} intervals hold %{y:.1%} of the truths<extra></extra>",
    )


def _points_chart(points: PredictedPoints) -> Chart:
    """Return some predictions with their intervals and the truths."""
    from plotly import graph_objects

    ranks = list(range(1, len(points.mean) + 1))
    sides = list(zip(points.low, points.target, points.high, strict=True))
    inside = [low <= target <= high for low, target, high in sides]
    level = percent(points.level, 0)
    traces: list[Any] = [
        graph_objects.Scatter(
            x=[*ranks, *reversed(ranks)],
            y=[*points.high, *reversed(points.low)],
            fill="toself",
            mode="lines",
            line={"width": 0, "color": POSTERIOR},
            fillcolor=POSTERIOR,
            opacity=0.22,
            name=f"{level} interval",
            hoverinfo="skip",
        ),
        graph_objects.Scatter(
            x=ranks,
            y=points.mean,
            mode="lines",
            name="prediction",
            line={"color": POSTERIOR, "width": 2},
            hovertemplate="predicted %{y:.4g}<extra></extra>",
        ),
    ]
    for is_inside, name, colour in ((True, "truth inside", INK), (False, "truth outside", UNKNOWN)):
        chosen = [at for at, within in enumerate(inside) if within == is_inside]
        traces.append(
            graph_objects.Scatter(
                x=[ranks[at] for at in chosen],
                y=[points.target[at] for at in chosen],
                mode="markers",
                name=name,
                marker={"color": colour, "size": 6, "symbol": "circle" if is_inside else "diamond"},
                hovertemplate="truth %{y:.4g}<extra></extra>",
            )
        )
    layout = figure(
        traces,
        height=420,
        xaxis=axis("test examples, by what is predicted for them", showticklabels=False),
        yaxis=axis("target"),
    )
    rows = [
        (f"{index}", number(mean), f"{number(low)} to {number(high)}", number(target), "yes" if within else "no")
        for index, mean, (low, target, high), within in zip(points.index, points.mean, sides, inside, strict=True)
    ]
    head = ("example", "predicted", f"{level} interval", "truth", "inside")
    says = f"Predictions with their {level} intervals, and the truths; {sum(inside)} of {len(inside)} lie inside."
    return Chart("Predictions and truths", says, layout, Table(head, rows))
