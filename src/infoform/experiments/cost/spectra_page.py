"""The page of spectra, and its two pictures, from its JSON."""

from pathlib import Path
from statistics import median
from typing import Any

from infoform.common.figures import save_figure
from infoform.curvature.sketch import EXACT_LIMIT
from infoform.experiments.imagenet.networks import NETWORKS
from infoform.experiments.networks.architectures import ARCHITECTURES
from infoform.pages.markdown import table
from infoform.pages.template import PageTemplate
from infoform.records.study_result import Result

TEMPLATE = PageTemplate.beside(__file__)
RANKS = (1, 3, 10, 30, 100, 300, 1000)
SHOWN_RANK = 100
LEADING = 64  # eigenvectors of a large side, by default


def page(result: Result) -> str:
    settings = result.settings
    shares = {key: _network_kept(piece, RANKS.index(SHOWN_RANK)) for key, piece in result.pieces.items()}
    least, most = min(shares, key=lambda key: shares[key]), max(shares, key=lambda key: shares[key])
    return TEMPLATE.fill(
        shown_rank=SHOWN_RANK,
        least=f"{shares[least]:.0%}",
        least_network=title(least),
        most=f"{shares[most]:.0%}",
        most_network=title(most),
        kept=_kept(result),
        energy=_energy(result),
        shares=_shares(result),
        images=settings["images"],
        size=settings["size"],
        trained_counts=_counts(settings) or "none",
        trained_size=settings["trained_size"],
        sketched=EXACT_LIMIT,
        leading=LEADING,
    )


def title(key: str) -> str:
    """Return how a table calls a network."""
    *trained, name = key.split()
    return f"{NETWORKS[name].title}, trained" if trained else ARCHITECTURES.get(name, name)


def _counts(settings: Any) -> str:
    named = [key.split()[1] for key in settings["networks"] if key.startswith("trained")]
    return ", ".join(
        f"{settings['trained_images'][list(NETWORKS).index(name)]} ({NETWORKS[name].title})" for name in named
    )


def _shares(result: Result) -> str:
    rows = []
    for key, piece in result.pieces.items():
        one = piece["histogram"]
        known = one["weights"] - one["unknown"]
        middle = len(one["count"]) // 2
        above = sum(one["count"][middle:])
        rows.append(
            [
                title(key),
                f"{one['weights']:,}",
                f"{known:,}",
                f"{above:,} ({above / one['weights']:.2%})",
                f"{one['unknown_energy']:.1%}",
            ]
        )
    header = ["", "eigenvalues", "of these known", "above the mean", "energy of those not known"]
    return table(header, rows)


def _network_kept(piece: Any, at: int) -> float:
    layers = piece["layers"].values()
    total = sum(layer["energy"] for layer in layers)
    return float(sum(layer["energy"] * layer["kept"][at] for layer in layers) / total)


def _kept(result: Result) -> str:
    chosen = [at for at, rank in enumerate(RANKS) if rank in (1, 10, 100, 1000)]
    rows = []
    for key, piece in result.pieces.items():
        cells = [title(key)]
        for at in chosen:
            middle = median(layer["kept"][at] for layer in piece["layers"].values())
            cells.append(f"{_network_kept(piece, at):.1%} / {middle:.1%}")
        rows.append(cells)
    return table(["network / median layer", *(f"K = {RANKS[at]}" for at in chosen)], rows)


def _energy(result: Result) -> str:
    rows = []
    for key, piece in result.pieces.items():
        layers = piece["layers"]
        total = sum(layer["energy"] for layer in layers.values())
        most = sorted(layers, key=lambda name: -layers[name]["energy"])[:3]
        rows.append([title(key), ", ".join(f"`{name}` {layers[name]['energy'] / total:.0%}" for name in most)])
    return table(["", "layers"], rows, words=2)


def draw(result: Result, folder: Path) -> None:
    """Draw the histograms, and the energy over rank."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    pieces = result.pieces
    columns = min(4, len(pieces))
    lines = -(-len(pieces) // columns)
    figure = Figure(figsize=(2.6 * columns, 2.2 * lines), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (key, piece) in zip(figure.subplots(lines, columns, squeeze=False).ravel(), pieces.items(), strict=False):
        one = piece["histogram"]
        step = (one["high"] - one["low"]) / len(one["count"])
        places = [one["low"] + (index + 0.5) * step for index in range(len(one["count"]))]
        axes.bar(places, one["count"], width=step)
        axes.axvline(0, color="tab:orange", linewidth=1)
        axes.set(yscale="log")
        axes.set_title(title(key), fontsize=8)
        axes.set_xlabel("log₁₀ (Λ / mean)", fontsize=7)
        axes.tick_params(labelsize=7)
    save_figure(figure, folder / "spectra-histograms.png", dpi=100)

    figure = Figure(figsize=(6.0, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for key, piece in pieces.items():
        shares = [_network_kept(piece, at) for at in range(len(RANKS))]
        axes.plot(RANKS, shares, marker="o", markersize=3, label=title(key), linestyle="--" if " " in key else "-")
    axes.set(xscale="log", xlabel="eigenvalues kept in each layer", ylabel="share of the energy", ylim=(0, 1.02))
    axes.legend(fontsize=7)
    save_figure(figure, folder / "spectra-energy.png", dpi=100)
