"""Several runs side by side: one table, and their calibration in one chart."""

import math
from collections.abc import Sequence
from typing import Any

from infoform.records.evaluate import EvaluateResult, IntervalCoverage, ReliabilityBins
from infoform.report.blocks import Block, Chart, Panel, Section, Table, Text
from infoform.report.charts import axis, figure, label, log_axis, series
from infoform.report.inputs import Run
from infoform.report.sections.calibration import SHARE, filled_bins, ideal_line, reliability_trace
from infoform.report.sections.intervals import coverage_trace
from infoform.report.words import MISSING, SCORES, listed, number, percent, precision, score, size


def compare(runs: Sequence[Run]) -> Panel:
    """Return the panel that compares runs of one kind or of several."""
    blocks: list[Block] = []
    scored = [(run, run.evaluate) for run in runs if run.evaluate is not None]
    data = {str(run.option("evaluate", "data")) for run, _ in scored}
    if len(data) > 1:
        names = listed(f"'{name}'" for name in sorted(data))
        text = f"These runs were evaluated on different data ({names}): their scores do not compare directly."
        blocks.append(Text(text, "warning"))
    blocks.append(_table(runs))
    for task, test_data in sorted({(run.task, str(run.option("evaluate", "data"))) for run, _ in scored}):
        # scores of other data do not compare, so they do not share a chart
        alike = [
            (run, result)
            for run, result in scored
            if run.task == task and str(run.option("evaluate", "data")) == test_data
        ]
        if len(alike) > 1:
            coverages = [(run, result.intervals.interval_coverage) for run, result in alike if result.intervals]
            diagrams = [(run, result.calibration.reliability) for run, result in alike if result.calibration]
            blocks += [_coverage(coverages)] if coverages else []
            blocks += [_reliability(diagrams)] if diagrams else []
            blocks.append(_cost(alike))
    return Panel("Compare", f"{len(runs)} runs side by side", [Section("Side by side", blocks)])


def _table(runs: Sequence[Run]) -> Table:
    rows: list[list[str]] = []
    best: set[tuple[int, int]] = set()
    facts = {
        "task": [run.task for run in runs],
        "structure": [MISSING if run.fit is None else run.fit.settings.structure for run in runs],
        "rank": [_rank(run) for run in runs],
        "prior": [MISSING if run.fit is None else run.fit.prior for run in runs],
        "τ": [precision(run.prior_precision) for run in runs],
        "memory": [size(_bytes(run)) for run in runs],
        "test data": [run.option("evaluate", "data") or MISSING for run in runs],
    }
    rows += [[name, *values] for name, values in facts.items()]
    scored = [{} if run.evaluate is None else run.evaluate.scores for run in runs]
    names = [name for name in SCORES if name != "log_likelihood" and any(name in scores for scores in scored)]
    for name in names:
        shown, less, _ = SCORES[name]
        values = [scores.get(name) for scores in scored]
        rows.append([shown, *(score(name, value) for value in values)])
        best |= _best(len(rows) - 1, values, less, runs)
    aurocs = [_auroc(run) for run in runs]
    if any(value is not None for value in aurocs):
        rows.append(["unknown told from known (AUROC)", *(percent(value) for value in aurocs)])
        best |= _best(len(rows) - 1, aurocs, False, runs)
    head = ("", *(run.name for run in runs))
    return Table(head, rows, frozenset(best), "The best of each row is marked, among runs on the same data")


def _rank(run: Run) -> str:
    """Return the rank where the structure has one."""
    if run.fit is None or all(layer.rank is None for layer in run.fit.layers):
        return MISSING
    return number(run.fit.settings.rank)


def _bytes(run: Run) -> int | None:
    return None if run.fit is None else run.fit.total_bytes


def _best(row: int, values: Sequence[float | None], less: bool | None, runs: Sequence[Run]) -> set[tuple[int, int]]:
    """Return the cells of the best values among the runs of one kind that were evaluated on the same data."""
    best: set[tuple[int, int]] = set()
    groups: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for column, (run, value) in enumerate(zip(runs, values, strict=True), start=1):
        if value is not None and less is not None:
            groups.setdefault((run.task, _data(run)), []).append((column, value))
    for members in groups.values():
        there = [value for _, value in members]
        wanted = min(there) if less else max(there)
        if len(set(there)) > 1:
            best |= {(row, column) for column, value in members if value == wanted}
    return best


def _data(run: Run) -> str:
    """Return what a run was evaluated on, unknown data included."""
    return f"{run.option('evaluate', 'data') or MISSING} {run.option('evaluate', 'unknown') or ''}"


def _auroc(run: Run) -> float | None:
    """Return how well the best measure of a run tells the hardest of its unknown sets from known data."""
    sets = [] if run.evaluate is None else run.evaluate.every_unknown
    found = [best[1].auroc for one in sets if (best := one.best_separation) is not None]
    return min(found) if found else None


def _reliability(runs: Sequence[tuple[Run, ReliabilityBins]]) -> Chart:
    traces: list[Any] = [ideal_line()]
    rows = []
    for position, (run, bins) in enumerate(runs):
        filled = filled_bins(bins)
        traces.append(reliability_trace(filled, label(run.name), series(position, len(runs))))
        rows += [(run.name, percent(each.confidence), percent(each.accuracy), f"{each.count:,}") for each in filled]
    layout = figure(
        traces,
        height=420,
        xaxis=axis("confidence: how sure it is", **SHARE),
        yaxis=axis("right answers", **SHARE),
    )
    table = Table(("run", "mean confidence", "right", "predictions"), rows)
    return Chart("Promised and kept", "Confidence against right answers, run by run.", layout, table)


def _coverage(runs: Sequence[tuple[Run, IntervalCoverage]]) -> Chart:
    traces: list[Any] = [ideal_line()]
    rows = []
    for position, (run, coverage) in enumerate(runs):
        colour = series(position, len(runs))
        traces.append(coverage_trace(coverage.level, coverage.found, label(run.name), colour))
        pairs = zip(coverage.level, coverage.found, strict=True)
        rows += [(run.name, percent(level, 0), percent(inside)) for level, inside in pairs]
    layout = figure(traces, height=420, xaxis=axis("promised", **SHARE), yaxis=axis("found: truths inside", **SHARE))
    table = Table(("run", "interval", "truths inside"), rows)
    return Chart("Promised and kept", "Level of intervals against truths inside, run by run.", layout, table)


def _size_axis(sizes: Sequence[int]) -> dict[str, Any]:
    """Return an axis of bytes that spans at least a decade, so that nearly equal sizes look so."""
    if not sizes:
        return log_axis("memory of the uncertainty")
    low, high = math.log10(min(sizes)), math.log10(max(sizes))
    room = max(0.1, (1 - (high - low)) / 2)
    span = (low - room, high + room)
    ticks = [
        factor * 10**power
        for power in range(math.floor(span[0]), math.ceil(span[1]) + 1)
        for factor in ((1, 2, 5) if span[1] - span[0] < 2.5 else (1,))
        if span[0] <= math.log10(factor * 10.0**power) <= span[1] and power >= 0
    ]
    shown = {"tickvals": ticks, "ticktext": [size(tick) for tick in ticks]}
    return log_axis("memory of the uncertainty", range=list(span), **shown)


def _cost(runs: Sequence[tuple[Run, EvaluateResult]]) -> Chart:
    from plotly import graph_objects

    traces: list[Any] = []
    rows = []
    for position, (run, result) in enumerate(runs):
        nbytes, nll = _bytes(run), result.scores.get("nll")
        rows.append((run.name, size(nbytes), score("nll", nll)))
        if nbytes is not None and nll is not None:
            traces.append(
                graph_objects.Scatter(
                    x=[nbytes],
                    y=[nll],
                    mode="markers",
                    name=label(run.name),
                    marker={"color": series(position, len(runs)), "size": 14},
                    hovertemplate="%{x:,} bytes, NLL %{y:.4f}<extra></extra>",
                )
            )
    sizes = [nbytes for run, _ in runs if (nbytes := _bytes(run)) is not None]
    layout = figure(traces, xaxis=_size_axis(sizes), yaxis=axis("NLL: lower is better"))
    says = "What each run takes and how good it is: best is lower left."
    return Chart("Memory and quality", says, layout, Table(("run", "memory", "NLL"), rows))
