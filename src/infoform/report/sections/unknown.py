"""Does it notice what it does not know? Uncertainty of known and of unknown data."""

from collections.abc import Sequence
from typing import Any

from infoform.records.evaluate import Calibration, Histogram, SpreadHistogram, UnknownClasses
from infoform.report.blocks import Block, Chart, Section, Table, Text
from infoform.report.charts import KNOWN, UNKNOWN, axis, bars, figure, log_axis
from infoform.report.inputs import Run
from infoform.report.words import number, percent

MEASURES = {
    "plain_entropy": "entropy, network alone",
    "entropy": "entropy, with uncertainty",
    "mutual_information": "mutual information (what more data could tell)",
    "epistemic": "spread that comes from not knowing the weights",
}


def section(run: Run) -> Section | None:
    known = run.evaluate
    if known is None or known.unknown is None:
        return None
    blocks: list[Block] = [
        Text(
            "Here it was also given data of a kind it was never trained on. It cannot know the answer there, so it "
            "should be unsure: the two heaps should lie apart, the unknown one to the right."
        )
    ]
    several = len(known.every_unknown) > 1
    for unknown in known.every_unknown:
        of = f" ({unknown.name})" if several else ""
        if known.calibration is not None and unknown.classes is not None:
            blocks += _entropy_charts(known.calibration, unknown.classes, of)
        elif unknown.numbers is not None:
            blocks.append(_spreads(unknown.numbers.epistemic.auroc, unknown.numbers.spread_histogram, of))
    rows = [
        (
            *((str(unknown.name),) if several else ()),
            *(MEASURES[name], percent(scores.auroc), percent(scores.aupr), percent(scores.fpr95)),
        )
        for unknown in known.every_unknown
        for name, scores in unknown.separations.items()
    ]
    head = (
        *(("unknown data",) if several else ()),
        *("told apart by", "AUROC", "AUPR", "false alarms to find 95 %"),
    )
    blocks += [
        Table(head, rows, title="How well known and unknown are told apart"),
        Text(
            "AUROC: how often a random unknown example is rated less sure than a random known one; 50 % is guessing, "
            "100 % perfect. False alarms: the known examples that one must also take for unknown to find 95 % of those "
            "that are.",
            "hint",
        ),
    ]
    return Section("Does it notice what it does not know?", blocks)


def _entropy_charts(known: Calibration, unknown: UnknownClasses, of: str) -> list[Chart]:
    """Return the entropies with uncertainty and of the network alone, to the same scale."""
    alone = (known.plain_entropy_histogram, unknown.plain_entropy_histogram)
    together = (known.entropy_histogram, unknown.entropy_histogram)
    highest = max(max(shares(histogram.count)) for histogram in (*together, *alone))
    return [
        _entropies(f"With uncertainty{of}", unknown.entropy.auroc, *together, highest),
        _entropies(f"Network alone{of}", unknown.plain_entropy.auroc, *alone, highest),
    ]


def _entropies(title: str, auroc: float, known: Histogram, unknown: Histogram, highest: float) -> Chart:
    edges = known.edges
    layout = figure(
        heaps(edges, known.count, unknown.count),
        height=320,
        barmode="overlay",
        xaxis=axis(_entropy_title(edges[-1]), range=[0, edges[-1]]),
        yaxis=axis("share of examples", tickformat=".0%", range=[0, 1.05 * highest]),
    )
    says = f"Entropy of known and of unknown examples; AUROC {percent(auroc)}."
    return Chart(f"{title}: AUROC {percent(auroc)}", says, layout, heap_table(edges, known.count, unknown.count))


def _entropy_title(most: float) -> str:
    """Return what the axis says; earlier versions kept shares of the largest entropy."""
    return "entropy (0: sure, 1: no idea)" if most == 1 else f"entropy in nats (0: sure, {most:.2f}: no idea)"


def _spreads(auroc: float, histogram: SpreadHistogram, of: str) -> Chart:
    columns = (histogram.edges, histogram.known, histogram.unknown)
    layout = figure(
        heaps(*columns),
        height=320,
        barmode="overlay",
        xaxis=log_axis("spread of the prediction that comes from not knowing the weights"),
        yaxis=axis("share of examples", tickformat=".0%", rangemode="tozero"),
    )
    says = f"Spread of the predictions for known and for unknown examples; AUROC {percent(auroc)}."
    return Chart(f"With uncertainty{of}: AUROC {percent(auroc)}", says, layout, heap_table(*columns), wide=True)


def heaps(edges: Sequence[float], known: Sequence[int], unknown: Sequence[int]) -> list[Any]:
    """Return the bars of known and of unknown examples, each as shares of their number."""
    from plotly import graph_objects

    middles, widths = bars(edges)
    return [
        graph_objects.Bar(
            x=middles,
            y=shares(counts),
            width=widths,
            customdata=list(counts),
            name=f"{name} ({sum(counts):,})",
            marker={"color": colour, "line": {"width": 0}},
            opacity=0.6,
            hovertemplate=f"%{{customdata}} {name} examples (%{{y:.1%}})<extra></extra>",
        )
        for name, counts, colour in (("known", known, KNOWN), ("unknown", unknown, UNKNOWN))
    ]


def shares(counts: Sequence[int]) -> list[float]:
    """Return counts as shares of their sum."""
    total = sum(counts)
    return [count / total if total else 0.0 for count in counts]


def heap_table(edges: Sequence[float], known: Sequence[int], unknown: Sequence[int]) -> Table:
    """Return how many examples lie between the edges."""
    rows = [
        (f"{number(low, 3)} to {number(high, 3)}", f"{count:,}", f"{unknown_count:,}")
        for low, high, count, unknown_count in zip(edges, edges[1:], known, unknown, strict=False)
    ]
    return Table(("between", "known", "unknown"), rows)
