"""The pictures of the demo, drawn from its results; matplotlib without a screen."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from infoform.common.figures import save_figure
from infoform.demo.digits import DigitsResult
from infoform.demo.toy import ToyResult

TOY_TITLES = {"diag": "diag", "inf": "inf", "full": "full (exact blocks)"}
BLUE, ORANGE, GREY = "#1f5fa8", "#d9730d", "#555555"


def draw_toy(result: ToyResult, path: Path) -> None:
    """Draw data, true curve and predictive bands, one panel a structure."""
    figure, panels = _figure(1, len(result.deviations), size=(12.5, 4.6), sharey=True)
    x, mean = result.grid.numpy(), result.mean.numpy()
    for panel, (name, deviation) in zip(panels[0], result.deviations.items(), strict=True):
        for width, alpha in ((2, 0.18), (1, 0.32)):
            band = width * deviation.numpy()
            panel.fill_between(x, mean - band, mean + band, color=BLUE, alpha=alpha, lw=0, label=f"±{width} σ")
        panel.plot(x, mean, color=BLUE, lw=1.8, label="mean")
        panel.plot(x, result.truth.numpy(), color=ORANGE, lw=1.5, ls="--", label="y = x³")
        panel.plot(result.x.numpy(), result.y.numpy(), ".", color="black", ms=4, label="data")
        panel.set(title=TOY_TITLES[name], xlabel="x", xlim=(-6, 6), ylim=(-200, 200), xticks=range(-4, 5, 2))
        panel.grid(alpha=0.25)
    panels[0][0].set_ylabel("y")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    save_figure(figure, path, dpi=130)


def draw_reliability(result: DigitsResult, bins: int, path: Path) -> None:
    """Draw accuracy over confidence for the plain network and for inf, with the share of images in each bin."""
    shown = {"plain": "plain network", "inf": "inf"}
    figure, panels = _figure(2, len(shown), size=(9, 5.6), sharex=True, height_ratios=[3, 1])
    for column, (name, title) in enumerate(shown.items()):
        confidence, accuracy, share = reliability(result.probs[name], result.labels, bins)
        edges = torch.linspace(0, 1, bins + 1)[:-1].numpy()
        top, bottom = panels[0][column], panels[1][column]
        filled = share > 0
        style: dict[str, Any] = {"width": 1 / bins, "align": "edge", "edgecolor": "white"}
        top.bar(edges[filled], accuracy[filled], color=BLUE, label="accuracy", **style)
        top.plot(
            confidence[filled],
            accuracy[filled],
            "o",
            color=ORANGE,
            ms=4,
            clip_on=False,
            label="at the bin's mean confidence",
        )
        top.plot([0, 1], [0, 1], color=GREY, ls="--", lw=1.2, label="perfectly calibrated")
        row = result.rows[name]
        top.set(title=f"{title}: ECE {row.ece:.3f}, NLL {row.nll:.3f}", xlim=(0, 1), ylim=(0, 1))
        top.grid(alpha=0.25)
        bottom.bar(edges, share, color=GREY, **style)
        bottom.set(xlabel="confidence", yscale="log", ylim=(5e-4, 1.5))
        bottom.grid(alpha=0.25)
    panels[0][0].set_ylabel("accuracy")
    panels[1][0].set_ylabel("share of images")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    save_figure(figure, path, dpi=130)


def reliability(probs: Tensor, labels: Tensor, bins: int) -> tuple[Any, Any, Any]:  # (N, C), (N,) -> three of (bins,)
    """Return mean confidence, accuracy (both 0 in an empty bin) and share of the examples of every bin, as arrays."""
    confidence, predicted = probs.double().max(1)
    index = (confidence * bins).ceil().long().sub(1).clamp(0, bins - 1)
    count = torch.bincount(index, minlength=bins)
    sums = [
        torch.bincount(index, weights=values, minlength=bins) for values in (confidence, (predicted == labels).double())
    ]
    confidence, accuracy = (total / count.clamp_min(1) for total in sums)
    return confidence.numpy(), accuracy.numpy(), (count / len(labels)).numpy()


def _figure(rows: int, columns: int, *, size: tuple[float, float], **options: Any) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False, **options)
