"""Several runs side by side: one table, and their calibration in one chart."""

from collections.abc import Sequence
from typing import Any

from infoform.report.blocks import Block, Chart, Panel, Section, Table, Text
from infoform.report.charts import axis, figure, label, log_axis, series
from infoform.report.inputs import Run
from infoform.report.sections.calibration import SHARE, filled_bins, ideal_line, reliability_trace
from infoform.report.sections.intervals import coverage_trace
from infoform.report.words import MISSING, SCORES, listed, number, percent, precision, score, size


def compare(runs: Sequence[Run]) -> Panel:
    """Return the panel that compares runs of one kind or of several."""
    blocks: list[Block] = []
    scored = [run for run in runs if run.result("evaluate")]
    data = {str(run.records["evaluate"]["options"].get("data")) for run in scored}
    if len(data) > 1:
        names = listed(f"'{name}'" for name in sorted(data))
        text = f"These runs were evaluated on different data ({names}): their scores do not compare directly."
        blocks.append(Text(text, "warning"))
    blocks.append(_table(runs))
    for kind in ("classification", "multilabel", "regression"):
        alike = [run for run in scored if run.kind == kind]
        if len(alike) > 1:
            blocks.append(_coverage(alike) if kind == "regression" else _reliability(alike))
            blocks.append(_cost(alike))
    return Panel("Compare", f"{len(runs)} runs side by side", [Section("Side by side", blocks)])


def _table(runs: Sequence[Run]) -> Table:
    rows: list[list[str]] = []
    best: set[tuple[int, int]] = set()
    facts = {
        "task": [run.kind for run in runs],
        "structure": [str(run.fit.get("settings", {}).get("structure", MISSING)) for run in runs],
        "rank": [_rank(run) for run in runs],
        "prior": [str(run.fit.get("prior", MISSING)) for run in runs],
        "τ": [precision({**run.fit, **run.result("tune")}.get("prior_precision")) for run in runs],
        "memory": [size(run.fit.get("total_bytes")) for run in runs],
        "test data": [str(run.records.get("evaluate", {}).get("options", {}).get("data", MISSING)) for run in runs],
    }
    rows += [[name, *values] for name, values in facts.items()]
    found = [run.result("evaluate").get("scores", {}) for run in runs]
    names = [name for name in SCORES if name != "log_likelihood" and any(name in scores for scores in found)]
    for name in names:
        shown, less, _ = SCORES[name]
        values = [scores.get(name) for scores in found]
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
    there = any(layer.get("rank") is not None for layer in run.fit.get("layers", []))
    return number(run.fit["settings"]["rank"]) if there else MISSING


def _best(row: int, values: Sequence[float | None], less: bool | None, runs: Sequence[Run]) -> set[tuple[int, int]]:
    """Return the cells of the best values among the runs of one kind that were evaluated on the same data."""
    best: set[tuple[int, int]] = set()
    groups: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for column, (run, value) in enumerate(zip(runs, values, strict=True), start=1):
        if value is not None and less is not None:
            groups.setdefault((run.kind, _data(run)), []).append((column, value))
    for members in groups.values():
        there = [value for _, value in members]
        wanted = min(there) if less else max(there)
        if len(set(there)) > 1:
            best |= {(row, column) for column, value in members if value == wanted}
    return best


def _data(run: Run) -> str:
    """Return what a run was evaluated on, unknown data included."""
    options = run.records.get("evaluate", {}).get("options", {})
    return f"{options.get('data', MISSING)} {options.get('unknown', '')}"


def _auroc(run: Run) -> float | None:
    unknown = run.result("evaluate").get("unknown", {})
    for name in ("entropy", "epistemic"):
        if name in unknown:
            return float(unknown[name]["auroc"])
    return None


def _reliability(runs: Sequence[Run]) -> Chart:
    traces: list[Any] = [ideal_line()]
    rows = []
    for position, run in enumerate(runs):
        filled = filled_bins(run.result("evaluate")["reliability"])
        traces.append(reliability_trace(filled, label(run.name), series(position, len(runs))))
        rows += [
            (run.name, percent(one["confidence"]), percent(one["accuracy"]), f"{one['count']:,}") for one in filled
        ]
    layout = figure(
        traces,
        height=420,
        xaxis=axis("confidence: how sure it is", **SHARE),
        yaxis=axis("right answers", **SHARE),
    )
    table = Table(("run", "mean confidence", "right", "predictions"), rows)
    return Chart("Promised and kept", "Confidence against right answers, run by run.", layout, table)


def _coverage(runs: Sequence[Run]) -> Chart:
    traces: list[Any] = [ideal_line()]
    rows = []
    for position, run in enumerate(runs):
        found = run.result("evaluate")["interval_coverage"]
        traces.append(coverage_trace(found["level"], found["found"], label(run.name), series(position, len(runs))))
        pairs = zip(found["level"], found["found"], strict=True)
        rows += [(run.name, percent(level, 0), percent(kept)) for level, kept in pairs]
    layout = figure(traces, height=420, xaxis=axis("promised", **SHARE), yaxis=axis("found: truths inside", **SHARE))
    table = Table(("run", "interval", "truths inside"), rows)
    return Chart("Promised and kept", "Level of intervals against truths inside, run by run.", layout, table)


def _cost(runs: Sequence[Run]) -> Chart:
    from plotly import graph_objects

    traces: list[Any] = []
    rows = []
    for position, run in enumerate(runs):
        nbytes, nll = run.fit.get("total_bytes"), run.result("evaluate")["scores"]["nll"]
        rows.append((run.name, size(nbytes), score("nll", nll)))
        if nbytes is not None:
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
    layout = figure(traces, xaxis=log_axis("bytes of the uncertainty"), yaxis=axis("NLL: lower is better"))
    says = "What each run takes and how good it is: best is lower left."
    return Chart("Memory and quality", says, layout, Table(("run", "memory", "NLL"), rows))
