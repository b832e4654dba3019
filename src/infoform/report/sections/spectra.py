"""What was kept of each layer: eigenvalues in falling order, and the share of all information by rank."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from math import log10
from typing import Any

from infoform.records.fit import ByRank, FittedLayer, Spectrum
from infoform.report.blocks import Block, Chart, Section, Slider, Step, Table, Text
from infoform.report.charts import MUTED, POSTERIOR, axis, figure, label, log_axis, names_axis, series
from infoform.report.inputs import Run
from infoform.report.words import MISSING, number, percent, size

DECADES = 9  # of eigenvalues that are shown; less is rounding


def section(run: Run) -> Section | None:
    if run.fit is None:
        return None
    layers = {layer.name: layer.spectrum for layer in run.fit.layers if layer.spectrum is not None}
    if not layers:
        return None
    blocks: list[Block] = [
        Text(
            "What the data tell about a layer's weights is strong in some directions and weak in most. The strongest "
            "ones are kept (their number is the rank), the rest is only summed up. The faster a curve falls, the less "
            "is lost."
        ),
        _spectra(layers),
    ]
    if run.fit.by_rank is not None:
        blocks.append(_kept(layers, run.fit.by_rank, run.fit.settings.rank))
    blocks.append(_table(run.fit.layers))
    return Section("What was kept of each layer?", blocks)


def _spectra(layers: Mapping[str, Spectrum]) -> Chart:
    """Return the eigenvalues of every layer."""
    from plotly import graph_objects

    traces: list[Any] = []
    for position, (name, spectrum) in enumerate(layers.items()):
        colour = series(position, len(layers))
        positive = [at for at, value in enumerate(spectrum.eigenvalue) if value > 0]
        traces.append(
            graph_objects.Scatter(
                x=[spectrum.rank[at] for at in positive],
                y=[spectrum.eigenvalue[at] for at in positive],
                mode="lines",
                name=label(name),
                line={"color": colour, "width": 2},
                customdata=[spectrum.kept[at] for at in positive],
                hovertemplate="number %{x}: %{y:.3g}<br>up to here %{customdata:.1%} of the layer<extra></extra>",
            )
        )
    strongest = max(spectrum.eigenvalue[0] for spectrum in layers.values()) or 1.0
    layout = figure(
        traces,
        height=400,
        xaxis=log_axis("direction, the strongest first", dtick=1),
        yaxis=log_axis("information in it", dtick=2, range=[log10(strongest) - DECADES, log10(strongest) + 0.5]),
    )
    head = ("layer", "direction", "information in it", "kept up to here")
    rows = [
        (name, f"{rank:,}", number(value, 3), percent(kept))
        for name, spectrum in layers.items()
        for rank, value, kept in list(zip(spectrum.rank, spectrum.eigenvalue, spectrum.kept, strict=True))[::4]
    ]
    says = "Eigenvalues of each layer's information matrix, in falling order."
    return Chart("Strength of the directions", says, layout, Table(head, rows))


def _kept(layers: Mapping[str, Spectrum], together: ByRank, run_rank: object) -> Chart:
    """Return the share that each layer keeps, with a slider for the rank that starts at the run's own."""
    from plotly import graph_objects

    names = [label(name) for name in layers]
    ranks = together.rank
    start = bisect_right(ranks, max(run_rank, 1)) - 1 if isinstance(run_rank, int) else len(ranks) - 1

    def kept(at: int) -> list[float]:
        return [spectrum.kept[bisect_right(spectrum.rank, ranks[at]) - 1] for spectrum in layers.values()]

    steps = [
        Step(
            f"{rank:,}",
            f"With {rank:,} directions in every layer, {percent(together.kept[at])} is kept in all, in "
            f"{size(together.nbytes[at])}.",
            {0: {"x": kept(at), "text": [percent(share) for share in kept(at)]}},
        )
        for at, rank in enumerate(ranks)
    ]
    trace = graph_objects.Bar(
        x=kept(start),
        y=names,
        orientation="h",
        marker={"color": POSTERIOR},
        opacity=0.85,
        text=[percent(share) for share in kept(start)],
        textposition="outside",
        textfont={"color": MUTED},
        cliponaxis=False,
        hovertemplate="%{y}: %{x:.1%} kept<extra></extra>",
    )
    layout = figure(
        [trace],
        height=max(200, 90 + 30 * len(names)),
        xaxis=axis("kept", range=[0, 1.15], tickformat=".0%", tickvals=[0, 0.25, 0.5, 0.75, 1]),
        yaxis=names_axis(autorange="reversed"),
    )
    columns = zip(ranks, together.kept, together.nbytes, strict=True)
    rows = [(f"{rank:,}", percent(share), size(nbytes)) for rank, share, nbytes in columns]
    says = "The share of each layer's information that a rank keeps; move the slider."
    slider = Slider("Rank: directions kept in every layer", steps, start)
    return Chart("Kept by rank", says, layout, Table(("rank", "kept", "memory"), rows), slider)


def _table(layers: Sequence[FittedLayer]) -> Table:
    rows = [
        (
            layer.name,
            "×".join(map(str, layer.shape)),
            MISSING if layer.rank is None else f"{layer.rank:,}",
            percent(layer.kept),
            size(layer.nbytes),
        )
        for layer in layers
    ]
    return Table(("layer", "outputs × inputs", "rank", "kept", "memory"), rows, title="This run, layer by layer")
