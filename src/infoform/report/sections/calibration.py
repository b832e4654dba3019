"""Can its confidence be trusted? Reliability diagram, and what is left above a confidence."""

from collections.abc import Mapping
from typing import Any

from infoform.report.blocks import Chart, Section, Slider, Step, Table, Text
from infoform.report.charts import IDEAL, MUTED, PLAIN, POSTERIOR, axis, bars, figure
from infoform.report.inputs import Run
from infoform.report.words import counted, percent, score

SHARE = {"range": [-0.03, 1.05], "tickformat": ".0%"}
LEAST_STEP = 0.2  # sliders start here; with fewer classes the least confidence is higher anyway


def section(run: Run) -> Section | None:
    found = run.result("evaluate")
    if "reliability" not in found:
        return None
    blocks: list[Text | Chart | Table] = [
        Text(
            "Where a network says 80 %, it should be right 8 times out of 10. Each dot gathers the predictions of "
            "about one confidence (the more, the larger); dots on the dotted line keep their promise, dots below it "
            "are over-confident."
        ),
        reliability_chart(run),
    ]
    if "by_confidence" in found:
        blocks.append(_threshold_chart(found["by_confidence"], found["examples"]))
    blocks.append(score_table(found))
    return Section("Can its confidence be trusted?", blocks)


def reliability_chart(run: Run) -> Chart:
    from plotly import graph_objects

    found = run.result("evaluate")
    traces: list[Any] = [ideal_line()]
    rows = []
    for key, name, colour in (
        ("plain_reliability", "network alone", PLAIN),
        ("reliability", "with uncertainty", POSTERIOR),
    ):
        filled = filled_bins(found[key])
        traces.append(reliability_trace(filled, name, colour))
        rows += [
            [name, f"{percent(one['low'], 0)} to {percent(one['high'], 0)}", percent(one["confidence"]),
             percent(one["accuracy"]), f"{one['count']:,}"]
            for one in filled
        ]  # fmt: skip
    counts = found["reliability"]
    middles, widths = bars(counts["edges"])
    traces.append(
        graph_objects.Bar(
            x=middles,
            y=counts["count"],
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


def reliability_trace(filled: list[dict[str, Any]], name: str, colour: str) -> Any:
    from plotly import graph_objects

    total = sum(one["count"] for one in filled)
    return graph_objects.Scatter(
        x=[one["confidence"] for one in filled],
        y=[one["accuracy"] for one in filled],
        customdata=[one["count"] for one in filled],
        mode="lines+markers",
        name=name,
        line={"color": colour, "width": 1.3},
        marker={"color": colour, "opacity": 1, "size": [7 + 11 * (one["count"] / total) ** 0.5 for one in filled]},
        hovertemplate="said %{x:.1%}, right %{y:.1%}<br>%{customdata} predictions<extra></extra>",
    )


def filled_bins(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the bins of a reliability diagram that hold predictions."""
    keys = ("low", "high", "confidence", "accuracy", "count")
    bins = zip(found["edges"], found["edges"][1:], found["confidence"], found["accuracy"], found["count"], strict=False)
    return [dict(zip(keys, one, strict=True)) for one in bins if one[-1] > 0]


def score_table(found: Mapping[str, Any]) -> Table:
    """Return all scores beside the network's own, the better ones marked."""
    from infoform.report.words import SCORES

    rows, best = [], set()
    for name, value in found["scores"].items():
        if name == "log_likelihood":  # NLL says the same
            continue
        shown, less, says = SCORES.get(name, (name, None, ""))
        alone = found["plain_scores"][name]
        rows.append((shown, score(name, alone), score(name, value), says))
        if less is not None and score(name, alone) != score(name, value):
            best.add((len(rows) - 1, 2 if (value < alone) == less else 1))
    head = ("", "network alone", "with uncertainty", "what it is")
    return Table(head, rows, frozenset(best), "All scores; the better one of each row is marked")


def _threshold_chart(table: Mapping[str, Any], examples: int) -> Chart:
    from plotly import graph_objects

    places = [at for at, level in enumerate(table["confidence"]) if level >= LEAST_STEP]
    levels = [table["confidence"][at] for at in places]
    traces: list[Any] = []
    for prefix, name, colour in (("plain_", "network alone", PLAIN), ("", "with uncertainty", POSTERIOR)):
        traces.append(
            graph_objects.Scatter(
                x=levels,
                y=[table[f"{prefix}right"][at] for at in places],
                customdata=[table[f"{prefix}examples"][at] for at in places],
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
            y=[table["right"][places[start]]],
            mode="markers",
            marker={"color": POSTERIOR, "size": 15, "line": {"color": MUTED, "width": 2}},
            showlegend=False,
            hoverinfo="skip",
        )
    )
    steps = [
        Step(
            f"{100 * levels[at]:g} %",
            _acted(levels[at], table["examples"][place], examples, table["right"][place]),
            {2: {"x": [levels[at]], "y": [table["right"][place]]}},
        )
        for at, place in enumerate(places)
    ]
    layout = figure(
        traces,
        xaxis=axis("least confidence that you act on", range=[LEAST_STEP, 1.005], tickformat=".0%"),
        yaxis=axis("right among them", tickformat=".1%"),
    )
    rows = [
        (percent(levels[at], 0), f"{table['examples'][place]:,}", percent(table["right"][place]),
         f"{table['plain_examples'][place]:,}", percent(table["plain_right"][place]))
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
