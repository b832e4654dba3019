"""What `infoform predict` said of new data."""

from collections.abc import Sequence

from infoform.records.evaluate import Histogram
from infoform.report.blocks import Block, Chart, Section, Table, Text
from infoform.report.charts import POSTERIOR, axis, bars, figure, label, names_axis
from infoform.report.inputs import Run
from infoform.report.sections.examples import galleries
from infoform.report.sections.novelty import strangest
from infoform.report.sections.unknown import shares
from infoform.report.words import counted, number, percent

KINDS = {"least_certain": ("Least certain of them", "Worth a look by a person before anyone relies on them.")}
STRANGEST = ("Strangest of them", "Those least like the training data, and the layer whose inputs say so most.")
SHOWN = 40  # classes


def section(run: Run) -> Section | None:
    result = run.predict
    if result is None:
        return None
    source = run.option("predict", "data") or "new data"
    told = f"{counted(result.examples, 'prediction')} for '{source}', in '{result.predictions}'"
    blocks: list[Block] = []
    if result.classes is not None:
        told += f"; it is {percent(result.mean_confidence)} sure on average"
        blocks = [_confidences(result.classes.confidence_histogram), _classes(result.classes.predicted_classes)]
    elif result.numbers is not None:
        told += f"; their spread is {', '.join(number(std, 3) for std in result.numbers.mean_std)} on average"
    if result.novelty is not None:
        told += (
            f"; {percent(result.novelty.share)} are novel, unlike the training data, where "
            f"{percent(result.novelty.false_alarms, 0)} of known inputs are called so"
        )
    shown = [*galleries(result.chosen, KINDS), *strangest(result.chosen, *STRANGEST)]
    return Section("New predictions", [Text(f"{told}."), *blocks, *shown])


def _confidences(histogram: Histogram) -> Chart:
    from plotly import graph_objects

    edges, counts = histogram.edges, histogram.count
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


def _classes(classes: Sequence[tuple[str, int]]) -> Chart:
    from plotly import graph_objects

    shown = sorted(classes, key=lambda pair: -pair[1])[:SHOWN][::-1]
    trace = graph_objects.Bar(
        x=[count for _, count in shown],
        y=[label(name) for name, _ in shown],
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
    rows = [(name, f"{count:,}") for name, count in classes]
    says = "How often each class is predicted" + (f"; the {SHOWN} most frequent." if len(classes) > SHOWN else ".")
    return Chart("What it predicts", says, layout, Table(("class", "predictions"), rows))
