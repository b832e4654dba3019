"""uci-landscape: the plane of (N, τ) of every data set, with a slider for the method, and cuts through all of them."""

from collections.abc import Sequence
from typing import Any

from infoform.records.study_result import Result
from infoform.report.blocks import Chart, Section, Slider, Step, Table
from infoform.report.charts import INK, SCALE, UNKNOWN, axis, figure, log_axis, series
from infoform.report.words import number

DEPTH = 1.5  # nats below the best of a set that are told apart; all below look alike
COUNT = "N, times the number of examples"
TAU = "τ: prior precision"
SCORE = "test log-likelihood"
Plane = list[list[float]]  # rows of N, columns of τ


def sections(result: Result) -> list[Section]:
    """Return one section a data set."""
    settings = result.settings
    counts, taus = (_powers(settings[name], settings["points"]) for name in ("data_powers", "precision_powers"))
    planes_of_sets = []
    for name in settings["sets"]:
        planes = {key.split("/")[1]: piece["log_likelihood"] for key, piece in _pieces(result, name)}
        charts = [_plane(planes, counts, taus), _cuts(planes, counts, taus)]
        planes_of_sets.append(Section(f"The plane of (N, τ): {name}", charts))
    return planes_of_sets


def _plane(planes: dict[str, Plane], counts: Sequence[float], taus: Sequence[float]) -> Chart:
    from plotly import graph_objects

    steps, rows = [], []
    for method, plane in planes.items():
        value, at, other = max((value, at, other) for at, row in enumerate(plane) for other, value in enumerate(row))
        count, tau = number(counts[at], 3), number(taus[other], 3)
        sentence = f"{method}: at best {value:.3f}, at N = {count} times the examples and τ = {tau}."
        columns = [list(column) for column in zip(*plane, strict=True)]  # rows of τ, as a picture has them
        steps.append(Step(method, sentence, {0: {"z": columns}, 1: {"x": [counts[at]], "y": [taus[other]]}}))
        rows.append((method, f"{value:.3f}", count, tau))
    top = max(value for plane in planes.values() for row in plane for value in row)
    start = len(steps) - 1
    traces = [
        graph_objects.Heatmap(
            x=list(counts),
            y=list(taus),
            **steps[start].traces[0],
            zmin=top - DEPTH,
            zmax=top,
            colorscale=SCALE,
            reversescale=True,
            colorbar={"title": {"text": SCORE, "side": "right"}, "thickness": 12, "outlinewidth": 0},
            hovertemplate="N × %{x:.3g}, τ = %{y:.3g}<br>" + SCORE + " %{z:.3f}<extra></extra>",
            xgap=1,
            ygap=1,
        ),
        graph_objects.Scatter(
            **steps[start].traces[1],
            mode="markers",
            name="best of this method",
            marker={"symbol": "star", "size": 15, "color": UNKNOWN, "line": {"color": INK, "width": 1}},
            hoverinfo="skip",
        ),
    ]
    layout = figure(traces, height=460, xaxis=log_axis(COUNT, dtick=1), yaxis=log_axis(TAU, dtick=1))
    says = (
        f"{SCORE.capitalize()} over N and τ, dark is good; what lies more than {DEPTH} nats below the best of all "
        "methods is white. Move the slider to another method; drag to zoom."
    )
    table = Table(("method", f"best {SCORE}", "at N, times the examples", "at τ"), rows)
    return Chart("Every pair", says, layout, table, Slider("Method", steps, start))


def _cuts(planes: dict[str, Plane], counts: Sequence[float], taus: Sequence[float]) -> Chart:
    from plotly import graph_objects

    steps, rows = [], []
    for other, tau in enumerate(taus):
        lines = {method: [row[other] for row in plane] for method, plane in planes.items()}
        best = max(lines, key=lambda method: max(lines[method]))
        sentence = f"At τ = {number(tau, 3)} the best is {best}, with {max(lines[best]):.3f}."
        steps.append(
            Step(f"τ = {number(tau, 3)}", sentence, {at: {"y": line} for at, line in enumerate(lines.values())})
        )
        rows.append((number(tau, 3), *(f"{max(line):.3f}" for line in lines.values())))
    start = len(taus) // 2
    traces: list[Any] = [
        graph_objects.Scatter(
            x=list(counts),
            **steps[start].traces[at],
            mode="lines+markers",
            name=method,
            line={"color": series(at, len(planes)), "width": 2},
            hovertemplate=f"{method}, N × %{{x:.3g}}: %{{y:.3f}}<extra></extra>",
        )
        for at, method in enumerate(planes)
    ]
    top = max(value for plane in planes.values() for row in plane for value in row)
    layout = figure(
        traces,
        height=420,
        xaxis=log_axis(COUNT, dtick=1),
        yaxis=axis(f"{SCORE}: higher is better", range=[top - DEPTH, top + 0.05 * DEPTH]),
    )
    says = f"{SCORE.capitalize()} of all methods over N at one τ; move the slider. What is far worse lies below."
    table = Table(("τ", *(f"best of {method}" for method in planes)), rows)
    return Chart("A cut through the planes", says, layout, table, Slider("Prior precision", steps, start))


def _pieces(result: Result, name: str) -> list[tuple[str, Any]]:
    return [(key, piece) for key, piece in result.pieces.items() if key.split("/")[0] == name]


def _powers(limits: Sequence[float], points: int) -> list[float]:
    low, high = limits
    return [10 ** (low + (high - low) * at / (points - 1)) for at in range(points)]
