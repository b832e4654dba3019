"""Can its confidence be trusted? Reliability diagram, and what is left above a confidence."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from infoform.records.evaluate import ByConfidence, Calibration, EvaluateResult, ReliabilityBins
from infoform.report.blocks import Chart, Section, Slider, Step, Table, Text
from infoform.report.charts import IDEAL, MUTED, PLAIN, POSTERIOR, axis, bars, figure
from infoform.report.inputs import Run
from infoform.report.words import SCORES, counted, number, percent, score

SHARE = {"range": [-0.03, 1.05], "tickformat": ".0%"}
LEAST_STEP = 0.2  # sliders start here; with fewer classes the least confidence is higher anyway


def section(run: Run) -> Section | None:
    result = run.evaluate
    if result is None or result.calibration is None:
        return None
    blocks: list[Text | Chart | Table] = [
        Text(
            "Where a network says 80 %, it should be right 8 times out of 10. Each dot gathers the predictions of "
            "about one confidence (the more, the larger), with the 95 % interval of their share; dots on the dotted "
            "line keep their promise, dots below it are over-confident."
        ),
        reliability_chart(result.calibration),
    ]
    if result.confidences is not None:
        blocks.append(_threshold_chart(result.confidences.by_confidence, result.examples))
    blocks.append(score_table(result))
    return Section("Can its confidence be trusted?", blocks)


def reliability_chart(calibration: Calibration) -> Chart:
    """Return the reliability diagram of the predictions and of the network alone."""
    from plotly import graph_objects

    traces: list[Any] = [ideal_line()]
    rows = []
    for bins, name, colour in (
        (calibration.plain_reliability, "network alone", PLAIN),
        (calibration.reliability, "with uncertainty", POSTERIOR),
    ):
        filled = filled_bins(bins)
        traces.append(reliability_trace(filled, name, colour))
        rows += [
            [name, f"{percent(each.low, 0)} to {percent(each.high, 0)}", percent(each.confidence),
             percent(each.accuracy), f"{each.count:,}"]
            for each in filled
        ]  # fmt: skip
    middles, widths = bars(calibration.reliability.edges)
    traces.append(
        graph_objects.Bar(
            x=middles,
            y=calibration.reliability.count,
            width=[0.9 * width for width in widths],
            marker={"color": POSTERIOR},
            opacity=0.55,
            yaxis="y2",
            showlegend=False,
            hovertemplate="%{y} predictions<extra></extra>",
        )
    )
    layout = figure(
        traces,
        height=460,
        xaxis=axis("confidence: how sure it is", anchor="y2", **SHARE),
        yaxis=axis("right answers", domain=[0.3, 1], **SHARE),
        yaxis2=axis("how many", domain=[0, 0.2], nticks=3),
        hovermode="closest",
    )
    table = Table(("", "confidence", "mean confidence", "right", "predictions"), rows)
    says = "Confidence against the share of right answers; the bars count the predictions of each confidence."
    return Chart("Promised and kept", says, layout, table)


def ideal_line() -> Any:
    from plotly import graph_objects

    return graph_objects.Scatter(
        x=[0, 1],
        y=[0, 1],
        mode="lines",
        name="ideal",
        line={"color": IDEAL, "dash": "dot", "width": 2},
        hoverinfo="skip",
    )


@dataclass(frozen=True)
class FilledBin:
    """A bin of a reliability diagram that holds predictions."""

    low: float
    high: float
    confidence: float | None
    accuracy: float | None
    count: int


def filled_bins(bins: ReliabilityBins) -> list[FilledBin]:
    """Return the bins that hold predictions."""
    columns = (bins.edges, bins.edges[1:], bins.confidence, bins.accuracy, bins.count)
    return [FilledBin(*row) for row in zip(*columns, strict=False) if row[-1] > 0]


def reliability_trace(filled: Sequence[FilledBin], name: str, colour: str) -> Any:
    """Return the dots of a reliability diagram, the larger the more predictions."""
    from plotly import graph_objects

    total = sum(each.count for each in filled)
    ends = [wilson(each.accuracy or 0.0, each.count) for each in filled]
    return graph_objects.Scatter(
        x=[each.confidence for each in filled],
        y=[each.accuracy for each in filled],
        customdata=[each.count for each in filled],
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [high - (each.accuracy or 0.0) for each, (_, high) in zip(filled, ends, strict=True)],
            "arrayminus": [(each.accuracy or 0.0) - low for each, (low, _) in zip(filled, ends, strict=True)],
            "color": colour,
            "thickness": 1.2,
            "width": 3,
        },
        mode="markers",
        name=name,
        marker={"color": colour, "opacity": 1, "size": [7 + 11 * (each.count / total) ** 0.5 for each in filled]},
        hovertemplate="said %{x:.1%}, right %{y:.1%}<br>%{customdata} predictions<extra></extra>",
    )


def wilson(share: float, count: int, z: float = 1.96) -> tuple[float, float]:
    """Return the 95 % interval of a share that was found among so many; Wilson 1927."""
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return min(middle - half, share), max(middle + half, share)


def score_table(result: EvaluateResult) -> Table:
    """Return all scores beside those of the network alone, and of a temperature alone; the best ones are marked."""
    columns = {"network alone": result.plain_scores}
    if result.temperature_scores is not None:
        columns[f"temperature alone (T = {number(result.plain_temperature, 3)})"] = result.temperature_scores
    columns["with uncertainty"] = result.scores
    rows, best = [], set()
    for name in result.scores:
        if name == "log_likelihood":  # NLL says the same
            continue
        shown, less, says = SCORES.get(name, (name, None, ""))
        values = [scores.get(name) for scores in columns.values()]
        cells = [score(name, value) for value in values]
        rows.append((shown, *cells, says))
        there = [value for value in values if value is not None]
        if less is None or not there or len(set(cells)) == 1:
            continue
        wanted = score(name, min(there) if less else max(there))
        best |= {(len(rows) - 1, place) for place, cell in enumerate(cells, start=1) if cell == wanted}
    head = ("", *columns, "what it is")
    return Table(head, rows, frozenset(best), "All scores; the best one of each row is marked")


def _threshold_chart(table: ByConfidence, examples: int) -> Chart:
    """Return the share of right answers above every confidence, with a slider for the confidence."""
    from plotly import graph_objects

    places = [at for at, level in enumerate(table.confidence) if level >= LEAST_STEP]
    levels = [table.confidence[at] for at in places]
    traces: list[Any] = []
    for right, counts, name, colour in (
        (table.plain_right, table.plain_examples, "network alone", PLAIN),
        (table.right, table.examples, "with uncertainty", POSTERIOR),
    ):
        traces.append(
            graph_objects.Scatter(
                x=levels,
                y=[right[at] for at in places],
                customdata=[counts[at] for at in places],
                mode="lines",
                name=name,
                line={"color": colour, "width": 2.5},
                hovertemplate="at least %{x:.1%} sure: %{customdata} predictions, %{y:.1%} right<extra></extra>",
            )
        )
    start = levels.index(0.9)
    traces.append(
        graph_objects.Scatter(
            x=[levels[start]],
            y=[table.right[places[start]]],
            mode="markers",
            marker={"color": POSTERIOR, "size": 15, "line": {"color": MUTED, "width": 2}},
            showlegend=False,
            hoverinfo="skip",
        )
    )
    steps = [
        Step(
            f"{100 * levels[at]:g} %",
            _acted(levels[at], table.examples[place], examples, table.right[place]),
            {2: {"x": [levels[at]], "y": [table.right[place]]}},
        )
        for at, place in enumerate(places)
    ]
    layout = figure(
        traces,
        xaxis=axis("least confidence that you act on", range=[LEAST_STEP, 1.005], tickformat=".0%"),
        yaxis=axis("right among them", tickformat=".1%"),
    )
    rows = [
        (percent(levels[at], 0), f"{table.examples[place]:,}", percent(table.right[place]),
         f"{table.plain_examples[place]:,}", percent(table.plain_right[place]))
        for at, place in enumerate(places) if round(1000 * levels[at]) % 100 == 0 or levels[at] > 0.94
    ]  # fmt: skip
    head = ("at least", "predictions", "right", "network alone: predictions", "right")
    says = "The share of right answers among the predictions that are sure enough; move the slider."
    slider = Slider("Act only where it is at least this sure", steps, start)
    return Chart("What if you only act when it is sure?", says, layout, Table(head, rows), slider)


def _acted(level: float, count: int, examples: int, right: float | None) -> str:
    if right is None:
        return f"No prediction is {100 * level:g} % sure."
    told = f"{count:,} of {counted(examples, 'prediction')} ({percent(count / examples, 0)}) are at least"
    return f"{told} {100 * level:g} % sure, and {percent(right)} of them are right."
