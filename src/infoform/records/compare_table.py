"""A comparison as tables for people."""

import io
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from infoform.common.bytes import show_bytes
from infoform.records.compare import Apart, ComparedMethod, CompareResult, Gain

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

SCORES = {  # heading, digits, and how the figure is written
    "accuracy": "accuracy",
    "nll": "NLL",
    "brier": "Brier",
    "ece": "ECE",
    "calibrated_ece": "ECE if perfect",
    "rmse": "RMSE",
    "log_likelihood": "log-likelihood",
    "crps": "CRPS",
    "coverage": "in 90 %",
    "width": "its width",
}
PRIMARY = ("nll", "log_likelihood")  # the first that there is, is what a recommendation goes by
SHARES = ("accuracy", "coverage")
BY = {"entropy": "entropy", "mutual_information": "mutual information", "novelty": "novelty"}
WIDTH = 80


def show(result: CompareResult, console: "Console") -> None:
    """Print the tables, the recommendation and the notes."""
    for table in tables(result):
        console.print(table)
    console.print(f"[bold]{result.recommendation.reason}[/bold]", highlight=False)
    for note in result.notes:
        console.print(f"note: {note}", highlight=False, markup=False)


def as_text(result: CompareResult) -> str:
    """Return what `show` prints."""
    from rich.console import Console

    stream = io.StringIO()
    show(result, Console(file=stream, width=WIDTH, color_system=None))
    return stream.getvalue().rstrip()


def tables(result: CompareResult) -> "Iterator[Table]":
    """Give tables of scores, of differences and of costs, and one of how well each set of unknown data is noticed.

    Each fits into 80 columns.
    """
    from rich.table import Table

    first = result.methods[0]
    table = Table("", title=f"Scores on {result.examples:,} test examples")
    names = [*first.scores, *(["calibrated_ece"] if first.calibrated_ece is not None else [])]
    for name in names:
        table.add_column(SCORES[name], justify="right")
    for one in result.methods:
        table.add_row(_marked(one, result), *(_cell(one, name) for name in names))
    yield table
    primary = next(name for name in PRIMARY if name in first.scores)
    if len(result.methods) > 1:
        table = Table("", title=f"{SCORES[primary]}: differences, with 95 % intervals over examples")
        table.add_column("to plain", justify="right")
        table.add_column("to temperature", justify="right")
        for one in result.methods[1:]:
            cells = (signed(gains[primary]) if primary in gains else "" for gains in (one.to_plain, one.to_temperature))
            table.add_row(_marked(one, result), *cells)
        yield table
    table = Table("", title="Costs, in plain forward passes over the same examples")
    for name in ("predict", "tune", "fit", "bytes"):
        table.add_column(name, justify="right")
    for one in result.methods:
        size = "?" if one.cost.nbytes is None else show_bytes(one.cost.nbytes)
        times = (forwards(cost) for cost in (one.cost.predict, one.cost.tune, one.cost.fit))
        table.add_row(_marked(one, result), *times, size)
    yield table
    for name, count in result.unknown_examples.items():
        table = Table("", title=f"{name}: {count:,} unknown examples told from the test data, AUROC and FPR95")
        for score in BY.values():
            table.add_column(f"by {score}", justify="right")
        for one in result.methods:
            found = one.unknown[name]
            table.add_row(one.name, *(_apart(found.get(score)) for score in BY))
        yield table


def _marked(one: ComparedMethod, result: CompareResult) -> str:
    return ("→ " if one.name == result.recommendation.method else "") + one.name


def forwards(count: float | None) -> str:
    """Return a cost in plain forward passes."""
    if count is None:
        return "-"
    return f"{count:.1f}×" if count < 9.95 else f"{count:,.0f}×"


def figure(name: str, value: float) -> str:
    """Return a score as text."""
    if name in SHARES:
        return f"{100 * value:.1f} %"
    return f"{value:.4f}" if abs(value) < 100 else f"{value:,.1f}"


def signed(gain: Gain, *, factor: float = 1.0, digits: int = 4) -> str:
    """Return a difference with its interval."""
    return f"{factor * gain.mean:+.{digits}f} [{factor * gain.low:+.{digits}f}, {factor * gain.high:+.{digits}f}]"


def _cell(one: ComparedMethod, name: str) -> str:
    value = one.calibrated_ece if name == "calibrated_ece" else one.scores[name]
    return "-" if value is None or not math.isfinite(value) else figure(name, value)


def _apart(found: Apart | None) -> str:
    return "-" if found is None else f"{found.auroc:.3f}  {100 * found.fpr95:.0f} %"
