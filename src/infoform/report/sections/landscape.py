"""The search for τ, and for N where it was searched too: every trial."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log10
from typing import Any

from infoform.report.blocks import Block, Chart, Section, Slider, Step, Table, Text
from infoform.report.charts import INK, MUTED, POSTERIOR, SCALE, UNKNOWN, figure, log_axis
from infoform.report.charts import axis as plain_axis
from infoform.report.inputs import Run
from infoform.report.words import SCORES, number, score

TAU = "τ: how firmly weights are held"
COUNT = "N: how much the data count"
BANDS = 6  # ranges of τ that a slider goes through where the trials lie on no grid
SHOWN = ("nll", "ece", "brier", "accuracy", "rmse", "crps")


@dataclass(frozen=True)
class ScoredPair:
    """A pair (N, τ) that was tried, whose score is finite."""

    num_data: float
    prior_precision: float
    value: float  # of the objective
    scores: Mapping[str, float | None]


def section(run: Run) -> Section | None:
    if run.tune is None or run.tune.objective is None:
        return None
    objective = run.tune.objective
    trials = [
        ScoredPair(trial.num_data, trial.prior_precision, value, trial.scores)
        for trial in run.tune.trials
        if (value := trial.scores.get(objective)) is not None
    ]
    if not trials:
        return None
    text = (
        "τ says how far the weights may stray from the trained ones: small values give much uncertainty, large ones "
        "hardly any. Each value was tried on validation data, and the one with the lowest "
        f"{SCORES[objective][0]} was taken."
    )
    blocks: list[Block] = [Text(text)]
    if len({trial.num_data for trial in trials}) > 1:
        blocks += [_plane(trials, objective), _slices(trials, objective)]
    else:
        blocks.append(_line(trials, objective))
    return Section("How was the uncertainty tuned?", blocks)


def table_of(trials: Sequence[ScoredPair], objective: str) -> Table:
    """Return all trials, the best first."""
    names = [name for name in SHOWN if name in trials[0].scores]
    ordered = sorted(trials, key=lambda trial: trial.value)
    rows = [
        (number(trial.prior_precision), number(trial.num_data), *(score(name, trial.scores[name]) for name in names))
        for trial in ordered
    ]
    return Table(("τ", "N", *(SCORES[name][0] for name in names)), rows)


def _line(trials: Sequence[ScoredPair], objective: str) -> Chart:
    from plotly import graph_objects

    ordered = sorted(trials, key=lambda trial: trial.prior_precision)
    taus = [trial.prior_precision for trial in ordered]
    values = [trial.value for trial in ordered]
    best = min(range(len(values)), key=values.__getitem__)
    traces = [
        graph_objects.Scatter(
            x=taus,
            y=values,
            mode="lines+markers",
            showlegend=False,
            line={"color": POSTERIOR, "width": 2},
            marker={"color": POSTERIOR, "size": 7},
            hovertemplate="τ = %{x:.4g}: %{y:.4f}<extra></extra>",
        ),
        graph_objects.Scatter(
            x=[taus[best]],
            y=[values[best]],
            mode="markers",
            name="shown below",
            marker={"color": UNKNOWN, "size": 14, "line": {"color": MUTED, "width": 1}},
            hoverinfo="skip",
        ),
    ]
    steps = [
        Step(f"τ = {number(tau)}", _told(trial), {1: {"x": [tau], "y": [value]}})
        for tau, value, trial in zip(taus, values, ordered, strict=True)
    ]
    layout = figure(
        traces, xaxis=log_axis(TAU), yaxis=plain_axis(f"{SCORES[objective][0]} on validation data: lower is better")
    )
    says = f"The {SCORES[objective][0]} of every value of τ that was tried; τ = {number(taus[best])} is the best."
    slider = Slider("Prior precision", steps, best)
    return Chart("Every value tried", says, layout, table_of(trials, objective), slider)


def _plane(trials: Sequence[ScoredPair], objective: str) -> Chart:
    from plotly import graph_objects

    name = SCORES[objective][0]
    values = [trial.value for trial in trials]
    best = min(trials, key=lambda trial: trial.value)
    cap = _cap(values)
    colour = {"colorscale": SCALE, "cmin": min(values), "cmax": max(cap, min(values) + 1e-9), "showscale": True}
    bar = {"title": {"text": name}, "thickness": 12, "outlinewidth": 0}
    traces: list[Any] = [
        graph_objects.Scatter(
            x=[trial.num_data for trial in trials],
            y=[trial.prior_precision for trial in trials],
            customdata=[trial.value for trial in trials],
            mode="markers",
            showlegend=False,
            marker={
                "color": values, "size": 22, "symbol": "square", "line": {"color": MUTED, "width": 0.5},
                "colorbar": bar, **colour,
            },
            hovertemplate="N = %{x:.4g}, τ = %{y:.4g}<br>" + name + " %{customdata:.4f}<extra></extra>",
        ),
        graph_objects.Scatter(
            x=[best.num_data],
            y=[best.prior_precision],
            mode="markers",
            name="best",
            marker={"symbol": "star", "size": 15, "color": UNKNOWN, "line": {"color": INK, "width": 1}},
            hoverinfo="skip",
        ),
    ]  # fmt: skip
    grid = _grid(trials)
    if grid is not None:
        counts, taus = grid
        by_pair = {(trial.num_data, trial.prior_precision): trial.value for trial in trials}
        heat = {key: value for key, value in colour.items() if not key.startswith("cm")}
        traces[0] = graph_objects.Heatmap(
            x=counts,
            y=taus,
            z=[[by_pair.get((count, tau)) for count in counts] for tau in taus],
            zmin=colour["cmin"],
            zmax=colour["cmax"],
            colorbar=bar,
            hovertemplate="N = %{x:.4g}, τ = %{y:.4g}<br>" + name + " %{z:.4f}<extra></extra>",
            xgap=1,
            ygap=1,
            **heat,
        )
    layout = figure(traces, height=460, xaxis=log_axis(COUNT, dtick=1), yaxis=log_axis(TAU, dtick=1))
    says = (
        f"{name} over N and τ, dark is good; best at N = {number(best.num_data)}, "
        f"τ = {number(best.prior_precision)}. Drag to zoom, double-click to zoom out."
    )
    return Chart("Every pair tried", says, layout, table_of(trials, objective))


def _slices(trials: Sequence[ScoredPair], objective: str) -> Chart:
    from plotly import graph_objects

    name = SCORES[objective][0]
    bands = _bands(trials)
    best = min(trials, key=lambda trial: trial.value)
    start = next(at for at, (_, chosen) in enumerate(bands) if any(trial is best for trial in chosen))
    steps = []
    for title, chosen in bands:
        ordered = sorted(chosen, key=lambda trial: trial.num_data)
        here = min(ordered, key=lambda trial: trial.value)
        sentence = f"{title}: best at N = {number(here.num_data)}. {_told(here)}"
        x, y = [trial.num_data for trial in ordered], [trial.value for trial in ordered]
        steps.append(Step(title, sentence, {0: {"x": x, "y": y}}))
    everything = [trial.value for trial in trials]
    margin = 0.08 * (_cap(everything) - min(everything)) + 1e-9
    counts = [trial.num_data for trial in trials]
    trace = graph_objects.Scatter(
        x=steps[start].traces[0]["x"],
        y=steps[start].traces[0]["y"],
        mode="lines+markers",
        line={"color": POSTERIOR, "width": 2},
        marker={"color": POSTERIOR, "size": 8},
        hovertemplate="N = %{x:.4g}: %{y:.4f}<extra></extra>",
    )
    layout = figure(
        [trace],
        xaxis=log_axis(COUNT, dtick=1, range=[log10(min(counts)) - 0.1, log10(max(counts)) + 0.1]),
        yaxis=plain_axis(f"{name}: lower is better", range=[min(everything) - margin, _cap(everything) + margin]),
    )
    says = f"{name} over N at one τ, or in one range of it; move the slider. The worst tenth lies above."
    rows = [
        (step.label, number(count), f"{value:.4f}")
        for step in steps
        for count, value in zip(step.traces[0]["x"], step.traces[0]["y"], strict=True)
    ]
    return Chart(
        "A cut through the plane", says, layout, Table(("τ", "N", name), rows), Slider("Prior precision", steps, start)
    )


def _grid(trials: Sequence[ScoredPair]) -> tuple[list[float], list[float]] | None:
    """Return the values of N and τ where the trials lie on a grid, a last row that is not full included."""
    counts = sorted({trial.num_data for trial in trials})
    taus = sorted({trial.prior_precision for trial in trials})
    return (counts, taus) if len(counts) * len(taus) < len(trials) + max(len(taus), 2) else None


def _bands(trials: Sequence[ScoredPair]) -> list[tuple[str, list[ScoredPair]]]:
    """Return the trials of each τ of a grid, or of ranges of τ, by their titles."""
    ordered = sorted(trials, key=lambda trial: trial.prior_precision)
    if _grid(trials) is not None:
        taus = sorted({trial.prior_precision for trial in trials})
        return [(f"τ = {number(tau)}", [trial for trial in ordered if trial.prior_precision == tau]) for tau in taus]
    size = -(-len(ordered) // BANDS)
    parts = [ordered[at : at + size] for at in range(0, len(ordered), size)]
    return [
        (f"τ from {number(part[0].prior_precision, 3)} to {number(part[-1].prior_precision, 3)}", part)
        for part in parts
    ]


def _cap(values: Sequence[float]) -> float:
    """Return the largest value that scales show: the worst tenth would hide all other differences."""
    return sorted(values)[int(0.9 * (len(values) - 1))]


def _told(trial: ScoredPair) -> str:
    parts = [f"{SCORES[name][0]} {score(name, trial.scores[name])}" for name in SHOWN if name in trial.scores]
    return ", ".join(parts) + "."
