"""Which way to be uncertain should one take? Methods on the same test data, by quality and cost."""

from typing import Any

from infoform.records.compare import ComparedMethod, CompareResult
from infoform.records.compare_table import BY, PRIMARY, forwards, signed
from infoform.report.blocks import Chart, Section, Sentences, Table, Text
from infoform.report.charts import IDEAL, POSTERIOR, axis, figure, label, names_axis
from infoform.report.inputs import Run
from infoform.report.words import SCORES, counted, percent, score, size

OWN = {"coverage": ("truths in 90 % intervals", None, ""), "width": ("width of 90 % intervals", True, "")}
SHARES = ("coverage",)


def section(run: Run) -> Section | None:
    result = run.compare
    if result is None:
        return None
    key = next(name for name in PRIMARY if name in result.methods[0].scores)
    blocks: list[Text | Sentences | Chart | Table] = [
        Sentences([result.recommendation.reason]),
        _chart(result, key),
        _scores(result, key),
    ]
    blocks += [_unknown(result, name) for name in result.unknown_examples]
    if result.notes:
        blocks.append(Text(" ".join(result.notes), "hint"))
    return Section("Which method should you take?", blocks)


def _chart(result: CompareResult, key: str) -> Chart:
    """Return the score of every method, with its cost beside its name and the plain network as a dashed line."""
    from plotly import graph_objects

    plain, others = result.methods[0], result.methods[:0:-1]  # the first one on top
    level, name = plain.scores[key], SCORES[key][0]
    rows = [f"{label(one.name)}<br>{forwards(one.cost.predict)} forward" for one in others]
    gains = [one.to_plain[key] for one in others]
    dots = graph_objects.Scatter(
        x=[one.scores[key] for one in others],
        y=rows,
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [max(0.0, gain.high - gain.mean) for gain in gains],
            "arrayminus": [max(0.0, gain.mean - gain.low) for gain in gains],
            "color": POSTERIOR,
            "thickness": 1.5,
            "width": 5,
        },
        mode="markers",
        name="95 % interval",
        marker={"color": POSTERIOR, "size": 11},
        hovertemplate="%{y}<br>%{x:.4f}<extra></extra>",
    )
    line = graph_objects.Scatter(  # shows the dashed line in the legend; the line itself has the height of the chart
        x=[level],
        y=rows[:1],
        mode="lines",
        name="plain network",
        line={"color": IDEAL, "dash": "dash", "width": 2},
        hoverinfo="skip",
    )
    better = "less" if SCORES[key][1] else "more"
    layout = figure(
        [line, dots],
        height=150 + 62 * len(others),
        xaxis=axis(f"{name} ({better} is better)", nticks=6),
        yaxis=names_axis(range=[-0.6, len(others) - 0.4]),
        hovermode="closest",
        shapes=[
            {"type": "line", "x0": level, "x1": level, "y0": 0, "y1": 1, "yref": "paper",
             "line": {"color": IDEAL, "dash": "dash", "width": 2}}
        ],
    )  # fmt: skip
    table = [
        (one.name, f"{one.scores[key]:.4f}", signed(one.to_plain[key]) if key in one.to_plain else "",
         forwards(one.cost.predict), forwards(one.cost.tune), forwards(one.cost.fit), size(one.cost.nbytes))
        for one in result.methods
    ]  # fmt: skip
    head = ("", name, "difference to the plain network", "predict", "tune", "fit, in forwards", "memory")
    says = (
        f"Each dot is a method on the same {counted(result.examples, 'test example')}. A bar is the 95 % interval of "
        "its difference to the plain network: where it crosses the dashed line, the two cannot be told apart. Below a "
        "name stands what a prediction costs, in plain forward passes."
    )
    return Chart("Quality and cost", says, layout, Table(head, table), wide=True)


def _scores(result: CompareResult, key: str) -> Table:
    names = list(result.methods[0].scores)
    head = ("", *({**SCORES, **OWN}[name][0] for name in names))
    rows: list[tuple[str, ...]] = [(one.name, *(_cell(one, name) for name in names)) for one in result.methods]
    best: set[tuple[int, int]] = set()
    for place, name in enumerate(names):
        less = {**SCORES, **OWN}[name][1]
        if less is not None and name != "width":
            values = [one.scores[name] for one in result.methods]
            wanted = min(values) if less else max(values)
            best |= {(row, place + 1) for row, value in enumerate(values) if value == wanted}
    return Table(head, rows, frozenset(best), "All scores; the best of each column is marked")


def _cell(one: ComparedMethod, name: str) -> str:
    value = one.scores[name]
    shown = percent(value) if name in SHARES else score(name, value)
    if name == "ece" and one.calibrated_ece is not None:
        shown += f" (perfect: {percent(one.calibrated_ece)})"
    return shown


def _unknown(result: CompareResult, name: str) -> Table:
    rows = []
    for one in result.methods:
        found: dict[str, Any] = dict(one.unknown[name])
        cells = [
            "–" if sign not in found else f"{percent(found[sign].auroc)}, {percent(found[sign].fpr95, 0)}"
            for sign in BY
        ]
        rows.append((one.name, *cells))
    head = ("AUROC, and false alarms to find 95 %", *(f"by {sign}" for sign in BY.values()))
    examples = counted(result.unknown_examples[name], "unknown example")
    return Table(head, rows, title=f"Does it notice {name}? ({examples})")
