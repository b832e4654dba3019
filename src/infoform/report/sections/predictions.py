"""What `infoform predict` said of new data."""

from typing import Any

from infoform.report.blocks import Block, Chart, Section, Table, Text
from infoform.report.charts import POSTERIOR, axis, bars, figure, label, names_axis
from infoform.report.inputs import Run
from infoform.report.sections.examples import galleries
from infoform.report.sections.unknown import shares
from infoform.report.words import counted, number, percent

KINDS = {"least_certain": ("Least certain of them", "Worth a look by a person before anyone relies on them.")}
SHOWN = 40  # classes


def section(run: Run) -> Section | None:
    found = run.result("predict")
    if not found:
        return None
    source = run.records["predict"]["options"].get("data", "new data")
    told = f"{counted(found['examples'], 'prediction')} for '{source}', in '{found['predictions']}'"
    blocks: list[Block] = []
    if "confidence_histogram" in found:
        told += f"; it is {percent(found['mean_confidence'])} sure on average"
        blocks = [_confidences(found["confidence_histogram"]), _classes(found["predicted_classes"])]
    elif "mean_std" in found:
        told += f"; their spread is {', '.join(number(one, 3) for one in found['mean_std'])} on average"
    return Section("New predictions", [Text(f"{told}."), *blocks, *galleries(found, KINDS)])


def _confidences(found: dict[str, Any]) -> Chart:
    from plotly import graph_objects

    edges, counts = found["edges"], found["count"]
    middles, widths = bars(edges)
    trace = graph_objects.Bar(
        x=middles,
        y=shares(counts),
        width=widths,
        customdata=counts,
        marker={"color": POSTERIOR},
        opacity=0.8,
        hovertemplate="%{customdata} predictions (%{y:.1%})<extra></extra>",
    )
    layout = figure(
        [trace],
        height=280,
        xaxis=axis("confidence", range=[0, 1], tickformat=".0%"),
        yaxis=axis("share of predictions", tickformat=".0%"),
    )
    rows = [
        (f"{percent(low, 0)} to {percent(high, 0)}", f"{count:,}")
        for low, high, count in zip(edges, edges[1:], counts, strict=False)
    ]
    says = "How sure it is of the new data."
    return Chart("How sure it is", says, layout, Table(("confidence", "predictions"), rows))


def _classes(found: list[list[Any]]) -> Chart:
    from plotly import graph_objects

    shown = sorted(found, key=lambda pair: -pair[1])[:SHOWN][::-1]
    trace = graph_objects.Bar(
        x=[count for _, count in shown],
        y=[label(str(name)) for name, _ in shown],
        orientation="h",
        marker={"color": POSTERIOR},
        opacity=0.8,
        hovertemplate="%{y}: %{x}<extra></extra>",
    )
    layout = figure(
        [trace],
        height=max(200, 90 + 24 * len(shown)),
        xaxis=axis("predictions"),
        yaxis=names_axis(),
    )
    rows = [(str(name), f"{count:,}") for name, count in found]
    says = "How often each class is predicted" + (f"; the {SHOWN} most frequent." if len(found) > SHOWN else ".")
    return Chart("What it predicts", says, layout, Table(("class", "predictions"), rows))
