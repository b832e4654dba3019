"""The page of uci-landscape: the best value of every method, how much of the plane is near it, and pictures."""

from pathlib import Path
from typing import Any

from infoform.pages.markdown import bold_best, table
from infoform.records.study_result import Result

NEAR = 0.1  # nats


def page(result: Result) -> str:
    settings = result.settings
    sets = {name: _grids(result, name) for name in settings["sets"]}
    labels = list(next(iter(sets.values())))
    best, near = [], []
    for name, grids in sets.items():
        tops = [max(map(max, grids[label])) for label in labels]
        best.append([name, *bold_best([f"{top:.3f}" for top in tops], [round(top, 3) for top in tops], largest=True)])
        shares = [_share(grids[label], max(tops) - NEAR) for label in labels]
        near.append([name, *bold_best([f"{share:.0%}" for share in shares], shares, largest=True)])
    points, samples = settings["points"], settings["samples"]
    return f"""Mean test log-likelihood (nats a point, in the units of the data) of {samples} networks with sampled
weights, of one network a set (split {settings["split"]}), over a grid of {points} × {points} pairs: N from
10^{settings["data_powers"][0]:g} to 10^{settings["data_powers"][1]:g} times the number of examples, τ from
10^{settings["precision_powers"][0]:g} to 10^{settings["precision_powers"][1]:g}. The paper has 10,000 pairs a method
(`--full`) and ranges chosen set by set. `inf` is the paper's estimator, clipped; `ours` the library's. These are test
data: nothing is chosen here.

![Test log-likelihood over N and τ](../images/uci-landscape.png)

Dark is low, and everything more than 1.5 nats below the best of a set is black; N grows upwards, τ to the right.

## Best on the grid

{table(["", *labels], best)}

## Share of the grid within {NEAR} nats of the best of all methods

{table(["", *labels], near)}

A large share says that a method is safe to use untuned, not that it is good: where the posterior is narrow, all of them
are the plain network."""


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
        shown: dict[str, Any] = {"vmin": top - 1.5, "vmax": top, "cmap": "magma", "aspect": "auto", "extent": extent}
        for axes, label in zip(row, labels, strict=True):
            axes.imshow(grids[label], origin="lower", **shown)
            axes.tick_params(labelsize=7)
        row[0].set_ylabel(name, fontsize=9)
    for axes, label in zip(every[0], labels, strict=True):
        axes.set_title(label, fontsize=9)
    figure.supxlabel("log₁₀ τ", fontsize=9)
    figure.supylabel("log₁₀ N / examples", fontsize=9)
    figure.savefig(path, dpi=90)


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
