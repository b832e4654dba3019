"""The pictures of toy, from its JSON; needs matplotlib (the extra `demo`)."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from infoform.common.figures import save_figure
from infoform.experiments.toy.page import REACH, WAYS, Band, bands, ground_truth
from infoform.records.study_result import Result

BLUE, RED = "#1f77b4", "#d62728"


def draw(result: Result, folder: Path) -> None:
    """Draw the bands of every setting, the covariances, and the information matrices."""
    laplace, settings = result.pieces["laplace"], result.settings
    for way in WAYS:
        _bands(result, way, folder / f"toy-{way}.png")
    _matrices(laplace["covariance"], folder / "toy-covariance.png", logarithmic=False)
    blocks = {
        f"{settings['few_examples']} points": laplace["information"]["few"]["block"],
        f"{settings['examples']} points": laplace["information"]["all"]["block"],
    }
    _matrices(blocks, folder / "toy-information.png", logarithmic=True)


def _bands(result: Result, way: str, path: Path) -> None:
    from matplotlib.figure import Figure

    laplace = result.pieces["laplace"]
    shown = {"HMC": ground_truth(result), **bands(result, way)}
    columns = 4
    rows = math.ceil(len(shown) / columns)
    figure = Figure(figsize=(11, 2.6 * rows))
    figure.subplots_adjust(left=0.05, right=0.99, bottom=0.04, top=0.96, wspace=0.06, hspace=0.18)
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flatten()
    for panel, (label, band) in zip(panels, shown.items(), strict=False):
        _band(panel, laplace, label, band)
    for panel in panels[len(shown) :]:
        panel.set_axis_off()
    save_figure(figure, path, dpi=90, metadata={"Software": None}, pil_kwargs={"optimize": True})


def _band(panel: Any, laplace: dict[str, Any], label: str, band: Band) -> None:
    grid = laplace["grid"]
    for count in (3, 2, 1):
        low = [m - count * s for m, s in zip(band.mean, band.std, strict=True)]
        high = [m + count * s for m, s in zip(band.mean, band.std, strict=True)]
        panel.fill_between(grid, low, high, color=BLUE, alpha=0.18, linewidth=0)
    panel.plot(grid, [x**3 for x in grid], color="black", linewidth=0.8)
    panel.plot(grid, band.mean, color=BLUE, linewidth=1.4)
    panel.plot(grid, laplace["plain"], color=RED, linewidth=0.9, linestyle="--")
    panel.plot(laplace["x"], laplace["y"], ".", color="black", markersize=2)
    for edge in (-REACH, REACH):
        panel.axvline(edge, color="grey", linewidth=0.5, linestyle=":")
    panel.set(title=label, xlim=(grid[0], grid[-1]), ylim=(-220, 220))


def _matrices(matrices: dict[str, Sequence[Sequence[float]]], path: Path, *, logarithmic: bool) -> None:
    from matplotlib.figure import Figure

    shown = {
        label: [[math.copysign(math.log1p(abs(v)), v) if logarithmic else v for v in row] for row in rows]
        for label, rows in matrices.items()
    }
    top = max(abs(value) for rows in shown.values() for row in rows for value in row)
    figure = Figure(figsize=(7.2, 3.3))
    figure.subplots_adjust(left=0.02, right=0.86, bottom=0.03, top=0.91, wspace=0.06)
    panels = figure.subplots(1, len(shown))
    for panel, (label, rows) in zip(panels, shown.items(), strict=True):
        image = panel.imshow(rows, cmap="RdBu_r", vmin=-top, vmax=top)
        panel.set(title=label, xticks=[], yticks=[])
    figure.colorbar(image, cax=figure.add_axes((0.89, 0.08, 0.02, 0.78)))
    save_figure(figure, path, dpi=90, metadata={"Software": None}, pil_kwargs={"optimize": True})
