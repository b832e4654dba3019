"""The pictures of a classification experiment, from its JSON."""

from pathlib import Path
from typing import Any

from infoform.common.figures import save_figure
from infoform.experiments.classification.page import SHORT, collect, title, tuning_of
from infoform.records.study_result import Result

SHOWN = 6  # methods of a picture, at most: those of SHORT, and others where a run has none of these


def draw(name: str, result: Result, folder: Path) -> None:
    """Draw reliability, entropy, eigenvalues and tuning into `folder`."""
    rows = {method: found[0] for method, found in collect(result).items()}
    chosen = {m: row for m, row in rows.items() if tuning_of(m) in (None, "validation")}
    order = [*(m for m in SHORT if m in chosen), *(m for m in chosen if m not in SHORT)][:SHOWN]
    pictured = {method: chosen[method] for method in order}
    draw_reliability(pictured, folder / f"{name}-reliability.png")
    draw_entropy(pictured, folder / f"{name}-entropy.png")
    _eigenvalues(result.pieces["curvature 0"]["spectra"], folder / f"{name}-eigenvalues.png")
    _tuning({m: row for m, row in rows.items() if tuning_of(m) == "validation" and "tried" in row}, folder, name)


def _figure(columns: int, rows: int = 1, *, width: float = 3.2, height: float = 2.8) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False).ravel()


def draw_reliability(rows: dict[str, Any], path: Path) -> None:
    """Draw accuracy over confidence, a line for each method."""
    figure, (axes,) = _figure(1, width=5.5, height=4.5)
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    for method, row in rows.items():
        diagram = row["reliability"]
        filled = [index for index, count in enumerate(diagram["count"]) if count >= 5]  # fewer tell nothing
        points = [[diagram[axis][index] for index in filled] for axis in ("confidence", "accuracy")]
        axes.plot(*points, marker="o", markersize=3, label=f"{_plain(method)}, ECE {row['ece']:.4f}")
    axes.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1))
    axes.legend(fontsize=7)
    save_figure(figure, path, dpi=130)


def draw_entropy(rows: dict[str, Any], path: Path) -> None:
    """Draw histograms of entropy on known and unknown images, one picture for each method."""
    columns = min(3, len(rows))
    figure, all_axes = _figure(columns, -(-len(rows) // columns))
    for axes, (method, row) in zip(all_axes, rows.items(), strict=False):
        for name, colour in (("known", "tab:blue"), ("unknown", "tab:orange")):
            counts = row["histograms"][name]
            places = [(index + 0.5) / len(counts) for index in range(len(counts))]
            shares = [count / sum(counts) for count in counts]
            axes.bar(places, shares, width=1 / len(counts), alpha=0.6, color=colour, label=name)
        axes.set_title(f"{_plain(method)}\nAUROC {row['auroc']:.3f}", fontsize=8)
        axes.set(yscale="log", ylim=(1e-4, 1))
        axes.set_xlabel("entropy", fontsize=8)
    all_axes[0].legend(fontsize=7)
    save_figure(figure, path, dpi=130)


def _eigenvalues(spectra: dict[str, Any], path: Path) -> None:
    figure, all_axes = _figure(len(spectra), width=2.6, height=2.6)
    for axes, (layer, one) in zip(all_axes, spectra.items(), strict=True):
        step = (one["high"] - one["low"]) / len(one["count"])
        places = [one["low"] + (index + 0.5) * step for index in range(len(one["count"]))]
        axes.bar(places, one["count"], width=step)
        axes.set_title(f"layer {layer}", fontsize=8)
        axes.set(yscale="log")
        axes.set_xlabel("log₁₀ eigenvalue", fontsize=8)
    save_figure(figure, path, dpi=130)


def _tuning(rows: dict[str, Any], folder: Path, name: str) -> None:
    figure, (axes,) = _figure(1, width=6.5, height=4.5)
    for index, (method, row) in enumerate(rows.items()):
        style = ("-", "--", ":")[index // 10 % 3]  # colours come again after ten
        sane = [pair for pair in row["tried"] if pair[1] < 5 * min(one[1] for one in row["tried"])]
        axes.plot(*zip(*sane, strict=True), marker="o", markersize=3, linestyle=style, label=_plain(method))
    axes.set(xscale="log", yscale="log", xlabel="τ (prior precision)", ylabel="NLL of held-out data")
    axes.legend(fontsize=7)
    save_figure(figure, folder / f"{name}-tuning.png", dpi=130)


def _plain(method: str) -> str:
    return title(method).replace("`", "")
