"""Memory: what this uncertainty takes, and what other structures would take."""

from infoform.report.blocks import Chart, Section, Table, Text
from infoform.report.charts import IDEAL, PLAIN, POSTERIOR, figure, label, log_axis, names_axis
from infoform.report.inputs import Run
from infoform.report.words import size

STRUCTURES = {
    "diag": "each weight on its own, no correlations",
    "kfac": "correlations of inputs and of outputs, one factor each",
    "efb": "the same directions with measured sizes",
    "inf": "the strongest directions, and each weight's own variance exactly",
    "full": "all correlations within a layer",
    "auto": "all correlations within a small layer, else as inf",
    "by-layer": "another structure for each layer",
    "inf-paper": "inf as printed in the paper",
    "efb-paper": "efb as printed in the paper",
    "okf-paper": "kfac, the prior added exactly",
}


def section(run: Run) -> Section | None:
    from plotly import graph_objects

    if run.fit is None or not run.fit.structures:
        return None
    rows: list[tuple[str, int, bool | None, bool]] = [
        (size.structure, size.bytes, size.own, size.exact) for size in run.fit.structures
    ]
    if run.fit.weight_bytes is not None:
        rows.append(("the network itself", run.fit.weight_bytes, None, True))
    rows.sort(key=lambda row: -row[1])
    colours = [POSTERIOR if own else IDEAL if own is None else PLAIN for _, _, own, _ in rows]
    trace = graph_objects.Bar(
        x=[nbytes for _, nbytes, _, _ in rows],
        y=[label(name) for name, _, _, _ in rows],
        orientation="h",
        marker={"color": colours},
        text=[("" if exact else "at most ") + size(nbytes) for _, nbytes, _, exact in rows],
        textposition="outside",
        hovertemplate="%{y}: %{text}<extra></extra>",
        cliponaxis=False,
    )
    least = min(nbytes for _, nbytes, _, _ in rows)
    layout = figure(
        [trace],
        height=90 + 44 * len(rows),
        xaxis=log_axis("bytes, on a logarithmic scale", dtick=1, range=_decades(least, rows[0][1])),
        yaxis=names_axis(),
    )
    table = Table(
        ("", "memory", "what it keeps"),
        [
            (name, ("" if exact else "at most ") + size(nbytes), STRUCTURES.get(name, ""))
            for name, nbytes, _, exact in reversed(rows)
        ],
    )
    says = (
        "Bytes of the uncertainty in the form that this run has (blue) and in others, all with its prior and its rank."
    )
    text = (
        "Uncertainty about weights must be stored. Forms that keep more of how weights depend on each other take more."
    )
    return Section("How much memory does it take?", [Text(text), Chart("By structure", says, layout, table, wide=True)])


def _decades(low: float, high: float) -> list[float]:
    from math import floor, log10

    return [floor(log10(max(low, 1))) - 0.3, log10(max(high, 10)) + 0.5]
