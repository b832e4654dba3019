"""Is an input unlike the training data? Novelty beside other scores, and the strangest examples with their layer."""

from collections.abc import Sequence
from typing import Any

from infoform.records.evaluate import EvaluateResult, UnknownNovelty
from infoform.records.examples import ChosenExamples, ShownExample
from infoform.records.novelty import NovelExamples
from infoform.records.unknown_sets import ScoreApart, UnknownSet
from infoform.report.blocks import Block, Chart, Gallery, Section, Table, Text
from infoform.report.charts import PLAIN, POSTERIOR, UNKNOWN, axis, figure
from infoform.report.inputs import Run
from infoform.report.sections.calibration import SHARE
from infoform.report.sections.examples import shown_example
from infoform.report.sections.unknown import heap_table, heaps
from infoform.report.words import counted, percent

SCORES = {  # name in the JSON -> (name on the page, name of its axis, colour)
    "novelty": ("novelty", "less strange known inputs", POSTERIOR),
    "entropy": ("entropy", "entropy of the prediction, in nats", UNKNOWN),
    "mutual_information": ("mutual information", "mutual information, in nats", PLAIN),
}
MOST = 0.9995  # more would be told as 100.0 %
ROC_ROWS = 20  # of the table behind the curves


def section(run: Run) -> Section | None:
    result = run.evaluate
    if result is None or result.novelty is None:
        return None
    novelty, sets = result.novelty, result.unknown_sets or []
    blocks: list[Block] = [
        Text(
            "Novelty says how unlike the training data an input is, whatever the network answers: the share of known "
            "inputs that look less strange to its layers. An input is called novel where that share is above "
            f"{percent(1 - novelty.false_alarms, 0)}, so {percent(novelty.false_alarms, 0)} of known inputs should be."
        ),
        set_table(novelty, result.examples, sets),
    ]
    for one in sets:
        of = f" ({one.name})" if len(sets) > 1 else ""
        blocks += [*(_heap_chart(name, one, of) for name in SCORES if name in one.scores), roc_chart(one, of)]
    several = len(result.every_unknown) > 1
    for unknown in result.every_unknown:
        if unknown.novelty is not None:
            which, of = (f"'{unknown.name}'", f" ({unknown.name})") if several else ("the unknown data", "")
            blocks.append(part_table(unknown.novelty, of))
            says = f"Of {which}, those least like the training data, and the layer whose inputs say so most."
            blocks += strangest(unknown.chosen, f"Unknown, and strangest{of}", says)
    says = "Of the known data, those least like the training data: look for damaged or misplaced examples."
    blocks += strangest(result.chosen, "Known, yet strangest", says)
    return Section("Is an input unlike the training data?", blocks)


def set_table(known: NovelExamples, examples: int, sets: Sequence[UnknownSet]) -> Table:
    """Return the share of each set that is called novel, and how well each score tells the set from known data."""
    names = [name for name in SCORES if any(name in one.scores for one in sets)]
    rows = [("known data", f"{examples:,}", percent(known.share), *("" for _ in names))]
    best = set()
    for row, one in enumerate(sets, start=1):
        aurocs = {name: one.scores[name].auroc for name in names if name in one.scores}
        cells = [percent(aurocs.get(name)) for name in names]
        rows.append((one.name, f"{one.examples:,}", percent(one.novel), *cells))
        best |= {(row, 3 + names.index(name)) for name, auroc in aurocs.items() if auroc == max(aurocs.values())}
    head = ("data", "examples", "called novel", *(f"AUROC by {SCORES[name][0]}" for name in names))
    title = "Called novel" + ("; the best score is marked" if names else "")
    return Table(head, rows, frozenset(best), title)


def part_table(novelty: UnknownNovelty, of: str = "") -> Table:
    """Return how well each part of novelty alone tells unknown from known data."""
    rows = [
        (name, percent(scores.auroc), percent(scores.aupr), percent(scores.fpr95))
        for name, scores in {"all together": novelty.together, **novelty.parts}.items()
    ]
    return Table(
        ("part of novelty", "AUROC", "AUPR", "false alarms to find 95 %"), rows, title=f"What novelty is made of{of}"
    )


def _heap_chart(name: str, one: UnknownSet, of: str) -> Chart:
    score = one.scores[name]
    shown, words, _ = SCORES[name]
    edges = (score.edges, score.known, score.unknown)
    spread = {"range": [0, 1], "tickformat": ".0%"} if name == "novelty" else {}
    layout = figure(
        heaps(*edges),
        height=320,
        barmode="overlay",
        xaxis=axis(words, **spread),
        yaxis=axis("share of examples", tickformat=".0%", rangemode="tozero"),
    )
    says = f"The {shown} of known data and of '{one.name}'; AUROC {percent(score.auroc)}."
    return Chart(f"By {shown}{of}: AUROC {percent(score.auroc)}", says, layout, heap_table(*edges))


def roc_chart(one: UnknownSet, of: str = "") -> Chart:
    """Return the ROC curves of all scores on one unknown set."""
    traces = [_curve(name, score) for name, score in one.scores.items() if name in SCORES]
    layout = figure(
        traces,
        height=320,
        xaxis=axis("false alarms", **SHARE),
        yaxis=axis("unknown found", **SHARE),
        hovermode="closest",
        legend={"x": 1, "y": 0.02, "xanchor": "right", "yanchor": "bottom"},  # a curve leaves this corner free
    )
    rows = [
        (SCORES[name][0], percent(false), percent(found))
        for name, score in one.scores.items()
        if name in SCORES
        for false, found in thinned(list(zip(score.roc.false_alarms, score.roc.found, strict=True)))
    ]
    says = f"How much of '{one.name}' is found at every share of false alarms; the upper left corner is best."
    return Chart(f"Found against false alarms (ROC){of}", says, layout, Table(("by", "false alarms", "found"), rows))


def thinned(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """Return some of the points, the first and the last among them."""
    step = max(1, -(-len(points) // ROC_ROWS))
    return [*points[:-1:step], points[-1]]


def _curve(name: str, score: ScoreApart) -> Any:
    from plotly import graph_objects

    shown, _, colour = SCORES[name]
    return graph_objects.Scatter(
        x=score.roc.false_alarms,
        y=score.roc.found,
        mode="lines",
        name=shown,
        line={"color": colour, "width": 2.5, "dash": "dot" if name == "mutual_information" else "solid"},
        hovertemplate=f"{shown}: %{{y:.1%}} found at %{{x:.1%}} false alarms<extra></extra>",
    )


def strangest(chosen: ChosenExamples | None, title: str, says: str) -> list[Block]:
    """Return the gallery of the strangest examples, each with the layers that say so."""
    if chosen is None or not chosen.strangest:
        return []
    return [Gallery(title, says, [shown_example(example, _strange_lines(example)) for example in chosen.strangest])]


def _strange_lines(example: ShownExample) -> list[str]:
    """Return how strange an example is, and the layer that finds it strangest."""
    if example.novelty is None:
        return []
    return [f"novelty {_most(example.novelty)}", f"strangest to layer {example.strangest_layer}"]


def _most(share: float) -> str:
    return f">\u00a0{percent(0.999)}" if share >= MOST else percent(share)


def novelty_sentences(result: EvaluateResult) -> list[str]:
    """Return what novelty found, for the summary."""
    if result.novelty is None:
        return []
    known = f"{percent(result.novelty.share)} of {counted(result.examples, 'known example')}"
    return [
        f"Of '{one.name}' it calls {percent(one.novel)} novel, unlike the training data, and {known}; "
        f"novelty tells one from the other {percent(one.scores['novelty'].auroc)} of the time."
        for one in result.unknown_sets or []
        if "novelty" in one.scores
    ]
