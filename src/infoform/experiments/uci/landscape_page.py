"""The page of uci-landscape: the best value of every method, how much of the plane is near it, and pictures."""

from pathlib import Path
from typing import Any

from infoform.common.figures import save_figure
from infoform.pages.markdown import bold_best, table
from infoform.pages.numbers import count_of
from infoform.pages.template import PageTemplate
from infoform.records.study_result import Result

TEMPLATE = PageTemplate.beside(__file__)
NEAR = 0.1  # nats
DEPTH = 1.5  # nats below the best, of the picture's colours


def page(result: Result) -> str:
    settings = result.settings
    sets = {name: _grids(result, name) for name in settings["sets"]}
    labels = list(next(iter(sets.values())))
    best, shares, close = [], [], []
    for name, grids in sets.items():
        tops = [max(map(max, grids[label])) for label in labels]
        best.append([name, *bold_best([f"{top:.3f}" for top in tops], [round(top, 3) for top in tops], largest=True)])
        near = [_share(grids[label], max(tops) - NEAR) for label in labels]
        shares.append([name, *bold_best([f"{share:.0%}" for share in near], near, largest=True)])
        close.append(max(tops) - min(tops) <= NEAR)
    (least_data, most_data), (least_precision, most_precision) = (
        [f"10^{power:g}" for power in settings[powers]] for powers in ("data_powers", "precision_powers")
    )
    return TEMPLATE.fill(
        close=count_of(close),
        near=NEAR,
        depth=DEPTH,
        best=table(["", *labels], best),
        shares=table(["", *labels], shares),
        samples=settings["samples"],
        split=settings["split"],
        points=settings["points"],
        least_data=least_data,
        most_data=most_data,
        least_precision=least_precision,
        most_precision=most_precision,
    )


def draw(result: Result, path: Path) -> None:
    """Draw the planes, a row for each set and a column for each method."""
    from matplotlib.figure import Figure

    names = result.settings["sets"]
    labels = list(_grids(result, names[0]))
    extent = (*result.settings["precision_powers"], *result.settings["data_powers"])
    figure = Figure(figsize=(1.5 * len(labels) + 0.9, 1.5 * len(names) + 0.6), layout="constrained")
    every = figure.subplots(len(names), len(labels), squeeze=False, sharex=True, sharey=True)
    for row, name in zip(every, names, strict=True):
        grids = _grids(result, name)
        top = max(max(map(max, grid)) for grid in grids.values())
        shown: dict[str, Any] = {"vmin": top - DEPTH, "vmax": top, "cmap": "magma", "aspect": "auto", "extent": extent}
        for axes, label in zip(row, labels, strict=True):
            axes.imshow(grids[label], origin="lower", **shown)
            axes.tick_params(labelsize=7)
        row[0].set_ylabel(name, fontsize=9)
    for axes, label in zip(every[0], labels, strict=True):
        axes.set_title(label, fontsize=9)
    figure.supxlabel("log₁₀ τ", fontsize=9)
    figure.supylabel("log₁₀ N / examples", fontsize=9)
    save_figure(figure, path, dpi=90)


def _grids(result: Result, name: str) -> dict[str, Any]:
    """Return the values by method: rows of N, columns of τ."""
    found = {}
    for key, piece in result.pieces.items():
        of, label = key.split("/")
        if of == name:
            found[label] = piece["log_likelihood"]
    return found


def _share(grid: list[list[float]], least: float) -> float:
    values = [value for row in grid for value in row]
    return sum(value >= least for value in values) / len(values)
