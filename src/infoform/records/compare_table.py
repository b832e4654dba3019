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
    "rmse": "RMSE",
    "log_likelihood": "log-likelihood",
    "crps": "CRPS",
    "coverage": "90 % interval holds",
    "width": "its width",
}
SHARES = ("accuracy", "coverage")
BY = {"entropy": "entropy", "mutual_information": "mutual information", "novelty": "novelty"}
WIDTH = 118


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
    """Give one table of scores and costs and, where there are unknown data, one of how well they are noticed."""
    from rich.table import Table

    first = result.methods[0]
    table = Table("", title=f"{result.examples:,} test examples; differences to the plain network with 95 % intervals")
    for name in first.scores:
        table.add_column(SCORES[name], justify="right")
    table.add_column("predict", justify="right")
    table.add_column("tune", justify="right")
    table.add_column("bytes", justify="right")
    for one in result.methods:
        mark = "→ " if one.name == result.recommendation.method else ""
        cells = [_cell(one, name) for name in first.scores]
        size = "?" if one.cost.nbytes is None else show_bytes(one.cost.nbytes)
        table.add_row(mark + one.name, *cells, forwards(one.cost.predict), forwards(one.cost.tune), size)
    yield table
    for name, count in result.unknown_examples.items():
        table = Table("", title=f"{name}: {count:,} unknown examples told from the test data, AUROC and FPR95")
        for score in BY.values():
            table.add_column(f"by {score}", justify="right")
        for one in result.methods:
            found = one.unknown[name]
            table.add_row(one.name, *(_apart(found.get(score)) for score in BY))
        yield table


def forwards(count: float | None) -> str:
    """Return a cost in plain forward passes."""
    if count is None:
        return "-"
    return f"{count:.1f}×" if count < 9.95 else f"{count:.0f}×"


def figure(name: str, value: float) -> str:
    """Return a score as text."""
    return f"{100 * value:.1f} %" if name in SHARES else f"{value:.4f}"


def signed(gain: Gain, *, factor: float = 1.0, digits: int = 4) -> str:
    """Return a difference with its interval."""
    return f"{factor * gain.mean:+.{digits}f} [{factor * gain.low:+.{digits}f}, {factor * gain.high:+.{digits}f}]"


def _cell(one: ComparedMethod, name: str) -> str:
    value = one.scores[name]
    if not math.isfinite(value):
        return "-"
    text = figure(name, value)
    if name == "ece" and one.calibrated_ece is not None:
        return f"{text}\n(perfect: {one.calibrated_ece:.4f})"
    gain = one.to_plain.get(name)
    if gain is None or name not in ("nll", "log_likelihood", "rmse"):
        return text
    return f"{text}\n{signed(gain, digits=3)}"


def _apart(found: Apart | None) -> str:
    return "-" if found is None else f"{found.auroc:.3f}  {100 * found.fpr95:.0f} %"
