"""The pictures of docs/speed.md: fits by network, and how fits grow."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .methods import OURS
from .networks import Network
from .results import Row
from .tables import find, ratio, seconds

OWN, OTHER = "#1f6f8b", "#c9b79c"
OUR_DIAGONAL, OUR_INF = "diag", "inf"
PEER_DIAGONAL, PEER_KRONECKER = "fastest diagonal of a peer", "fastest KFAC or EKFAC of a peer"
COLOURS = {OUR_DIAGONAL: "#7fb3c4", PEER_DIAGONAL: OTHER, OUR_INF: OWN, PEER_KRONECKER: "#a08a66"}


def draw_answer(found: Mapping[str, Mapping[str, float]], path: Path) -> bool:
    """Draw the plain passes that a fit takes, ours beside the fastest peer, a group of bars for each network."""
    shown = {name: values for name, values in found.items() if values}
    if not shown:
        return False
    plt = _pyplot()
    figure, axis = plt.subplots(figsize=(9, 3.6))
    for number, (label, colour) in enumerate(COLOURS.items()):
        places = [at + 0.2 * (number - 1.5) for at, values in enumerate(shown.values()) if label in values]
        heights = [values[label] for values in shown.values() if label in values]
        bars = axis.bar(places, heights, width=0.18, color=colour, label=label)
        axis.bar_label(bars, fmt="%.1f", padding=2, fontsize=8)
    axis.axhline(1, color="black", linewidth=0.8)
    axis.set_xticks(range(len(shown)), list(shown))
    axis.set_ylabel("plain gradient passes")
    axis.margins(y=0.12)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=8, frameon=False)
    _save(figure, path)
    return True


def draw_fits(rows: Sequence[Row], table: Mapping[str, Network], path: Path) -> bool:
    """Draw the bars of every network, in plain gradient passes; say whether there was anything to draw."""
    found = {}
    for name in table:
        ratios = {method: ratio(row) for method, row in find(rows, "fits", name).items()}
        measured = {method: value for method, value in ratios.items() if value is not None}
        if measured:
            found[name] = measured
    if not found:
        return False
    plt = _pyplot()
    from matplotlib import ticker

    sizes = [len(values) for values in found.values()]
    tallest = [max(sizes[index : index + 2]) for index in range(0, len(sizes), 2)]  # of each line of panels
    heights = [0.6 + 0.24 * bars for bars in tallest]
    figure, axes = plt.subplots(
        len(heights),
        min(2, len(found)),
        figsize=(11, 0.8 + sum(heights)),
        squeeze=False,
        height_ratios=heights,
    )
    for axis in axes.flat[len(found) :]:
        axis.set_visible(False)
    for index, (axis, (name, values)) in enumerate(zip(axes.flat, found.items(), strict=False)):
        order = sorted(values, key=values.__getitem__, reverse=True)
        bars = axis.barh(order, [values[one] for one in order], color=[OWN if one in OURS else OTHER for one in order])
        axis.bar_label(bars, fmt="%.3g", padding=3, fontsize=8)
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_locator(ticker.NullLocator())
        axis.axvline(1, color="black", linewidth=0.8)
        axis.set_title(name, loc="left", fontsize=10)
        axis.margins(x=0.15)
        axis.set_ylim(len(order) - tallest[index // 2] - 0.5, len(order) - 0.5)  # bars as thick in all panels
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("plain gradient passes over the same data, up to the posterior", fontsize=9)
    _save(figure, path)
    return True


def draw_growth(rows: Sequence[Row], path: Path) -> bool:
    """Draw fit time against examples and against width, both axes logarithmic."""
    panels = {"examples": "examples (MLP)", "width": "width of a square linear layer"}
    chosen = {stage: curves(rows, stage) for stage in panels}
    if not any(chosen.values()):
        return False
    plt = _pyplot()
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2))
    for axis, (stage, label) in zip(axes, panels.items(), strict=True):
        for number, (name, points) in enumerate(chosen[stage].items()):
            style = "--" if name.startswith("eigh") else ":" if name == "plain" else "-"
            axis.loglog(*zip(*points, strict=True), style, marker="o", markersize=4, label=name, color=f"C{number}")
        sizes = sorted({x for points in chosen[stage].values() for x, _ in points})
        axis.set_xticks(sizes, [f"{one:,}" for one in sizes])
        axis.minorticks_off()
        axis.set(xlabel=label, ylabel="seconds")
        axis.spines[["top", "right"]].set_visible(False)
        if sizes:
            axis.legend(fontsize=8, frameon=False)
    _save(figure, path)
    return True


def curves(rows: Sequence[Row], stage: str) -> dict[str, list[tuple[int, float]]]:
    """Return (size, seconds) of every method of a growth stage, and of the plain pass beside them."""
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        took = seconds(row) if row["stage"] == stage else None
        if took is None:
            continue
        found.setdefault(row["method"], {})[row["size"]] = took
        if row.get("plain_seconds"):
            found.setdefault("plain", {})[row["size"]] = sorted(row["plain_seconds"])[len(row["plain_seconds"]) // 2]
    return {name: sorted(points.items()) for name, points in found.items()}


def _pyplot() -> Any:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Software": None})
    _pyplot().close(figure)
