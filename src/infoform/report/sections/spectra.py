"""What was kept of each layer: eigenvalues in falling order, and the share of all information by rank."""

from math import log10
from typing import Any

from infoform.report.blocks import Block, Chart, Section, Slider, Step, Table, Text
from infoform.report.charts import MUTED, POSTERIOR, axis, figure, label, log_axis, names_axis, series
from infoform.report.inputs import Run
from infoform.report.words import MISSING, number, percent, size

DECADES = 9  # of eigenvalues that are shown; less is rounding


def section(run: Run) -> Section | None:
    layers = [layer for layer in run.fit.get("layers", []) if layer.get("spectrum")]
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
    if run.fit.get("by_rank"):
        blocks.append(_kept(layers, run.fit["by_rank"], run.fit["settings"].get("rank")))
    blocks.append(_table(run.fit["layers"]))
    return Section("What was kept of each layer?", blocks)


def _spectra(layers: list[dict[str, Any]]) -> Chart:
    from plotly import graph_objects

    traces: list[Any] = []
    for position, layer in enumerate(layers):
        spectrum, colour = layer["spectrum"], series(position, len(layers))
        positive = [at for at, value in enumerate(spectrum["eigenvalue"]) if value > 0]
        traces.append(
            graph_objects.Scatter(
                x=[spectrum["rank"][at] for at in positive],
                y=[spectrum["eigenvalue"][at] for at in positive],
                mode="lines",
                name=label(layer["name"]),
                line={"color": colour, "width": 2},
                customdata=[spectrum["kept"][at] for at in positive],
                hovertemplate="number %{x}: %{y:.3g}<br>up to here %{customdata:.1%} of the layer<extra></extra>",
            )
        )
    strongest = max(layer["spectrum"]["eigenvalue"][0] for layer in layers) or 1.0
    layout = figure(
        traces,
        height=400,
        xaxis=log_axis("direction, the strongest first", dtick=1),
        yaxis=log_axis("information in it", dtick=2, range=[log10(strongest) - DECADES, log10(strongest) + 0.5]),
    )
    head = ("layer", "direction", "information in it", "kept up to here")
    rows = [
        (layer["name"], f"{rank:,}", number(value, 3), percent(kept))
        for layer in layers
        for rank, value, kept in list(
            zip(*(layer["spectrum"][key] for key in ("rank", "eigenvalue", "kept")), strict=True)
        )[::4]
    ]
    says = "Eigenvalues of each layer's information matrix, in falling order."
    return Chart("Strength of the directions", says, layout, Table(head, rows))


def _kept(layers: list[dict[str, Any]], together: dict[str, Any], rank: Any) -> Chart:
    from plotly import graph_objects

    names = [label(layer["name"]) for layer in layers]
    own = rank if isinstance(rank, int) else None
    ranks = together["rank"]
    start = len(ranks) - 1 if own is None else max(at for at, one in enumerate(ranks) if one <= max(own, 1))

    def kept(at: int) -> list[float]:
        return [
            layer["spectrum"]["kept"][sum(one <= ranks[at] for one in layer["spectrum"]["rank"]) - 1]
            for layer in layers
        ]

    steps = [
        Step(
            f"{one:,}",
            f"With {one:,} directions in every layer, {percent(together['kept'][at])} is kept in all, in "
            f"{size(together['nbytes'][at])}.",
            {0: {"x": kept(at), "text": [percent(share) for share in kept(at)]}},
        )
        for at, one in enumerate(ranks)
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
    rows = [(f"{one:,}", percent(share), size(nbytes)) for one, share, nbytes in zip(*together.values(), strict=True)]
    says = "The share of each layer's information that a rank keeps; move the slider."
    slider = Slider("Rank: directions kept in every layer", steps, start)
    return Chart("Kept by rank", says, layout, Table(("rank", "kept", "memory"), rows), slider)


def _table(layers: list[dict[str, Any]]) -> Table:
    rows = [
        (
            layer["name"],
            "×".join(map(str, layer["shape"])),
            MISSING if layer["rank"] is None else f"{layer['rank']:,}",
            percent(layer["kept"]),
            size(layer["nbytes"]),
        )
        for layer in layers
    ]
    return Table(("layer", "outputs × inputs", "rank", "kept", "memory"), rows, title="This run, layer by layer")
