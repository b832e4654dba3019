"""The pictures of an ImageNet experiment, from its JSON: reliability, entropy, and the searched pairs."""

from pathlib import Path
from typing import Any

from infoform.common.figures import save_figure
from infoform.experiments.classification.charts import SHOWN, draw_entropy, draw_reliability
from infoform.experiments.classification.page import title, tuning_of
from infoform.records.study_result import Result


def draw(name: str, result: Result, folder: Path) -> None:
    """Draw into `folder`."""
    rows = {key: piece for key, piece in result.pieces.items() if "accuracy" in piece}
    sampled = {key: row for key, row in rows.items() if tuning_of(key) in ("search", "validation")}
    chosen = {"plain": rows["plain"], "temperature": rows["temperature"], **sampled}
    shown = dict(list(chosen.items())[:SHOWN])
    draw_reliability(shown, folder / f"{name}-reliability.png")
    draw_entropy(shown, folder / f"{name}-entropy.png")
    searched = {key: row for key, row in rows.items() if tuning_of(key) == "search"}
    if searched:
        _landscapes(searched, folder / f"{name}-search.png")


def _landscapes(rows: dict[str, Any], path: Path) -> None:
    """Draw the NLL that every pair (N, τ) is listed with first, up to twice the least one; crosses are above that."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(3, len(rows))
    lines = -(-len(rows) // columns)
    figure = Figure(figsize=(3.4 * columns, 2.9 * lines), layout="constrained")
    FigureCanvasAgg(figure)
    places = figure.subplots(lines, columns, squeeze=False).ravel()
    for axes in places[len(rows) :]:
        axes.set_axis_off()
    for axes, (method, row) in zip(places, rows.items(), strict=False):
        first = list(
            {(count, tau): [number, count, tau, score] for number, count, tau, score in row["tried"][::-1]}.values()
        )
        most = 2 * min(score for *_, score in first)
        good = [one for one in first if one[3] <= most]
        bad = [one for one in first if one[3] > most]
        points = axes.scatter(*_places(good), c=[one[3] for one in good], s=14, cmap="viridis_r")
        axes.scatter(*_places(bad), marker="x", s=12, linewidths=0.7, color="0.7")
        axes.scatter([row["num_data"]], [row["prior_precision"]], s=90, facecolors="none", edgecolors="black")
        axes.set(xscale="log", yscale="log")
        axes.set_xlabel("N", fontsize=8)
        axes.set_ylabel("τ", fontsize=8)
        axes.set_title(title(method).replace("`", ""), fontsize=8)
        figure.colorbar(points, ax=axes)
    save_figure(figure, path, dpi=110)


def _places(tried: list[list[float]]) -> tuple[list[float], list[float]]:
    return [one[1] for one in tried], [one[2] for one in tried]
