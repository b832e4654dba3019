"""Numbers from rows: medians, ratios, and tables in Markdown. Nothing is measured here."""

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from .results import Row

PARTS = ("fit", "posterior", "sample")


def find(rows: Iterable[Row], stage: str, network: str | None = None) -> dict[str, Row]:
    """Return the rows of a stage and network, by method."""
    return {row["method"]: row for row in rows if row["stage"] == stage and row["network"] == network}


def seconds(row: Row, upto: str = "posterior") -> float | None:
    """Return the median time of all parts of a run up to this one; None where it did not get there."""
    parts = row.get("seconds", {})
    names = [name for name in PARTS[: PARTS.index(upto) + 1] if parts.get(name)]
    if "failed" in row or not names:
        return None
    return median(sum(times) for times in zip(*(parts[name] for name in names), strict=True))


def ratio(row: Row, upto: str = "posterior") -> float | None:
    """Return that time in plain passes of the same run."""
    took = seconds(row, upto)
    return None if took is None or not row.get("plain_seconds") else took / median(row["plain_seconds"])


def sampled(row: Row) -> float | None:
    """Return the ratio with a first sample, for those that can draw one."""
    return ratio(row, "sample") if row.get("seconds", {}).get("sample") else None


def number(value: float | None, unit: str = "") -> str:
    if value is None:
        return "–"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}{unit}"


def size(value: float | None) -> str:
    if value is None:
        return "–"
    if value < 1e6:
        return f"{value / 1e3:,.0f} kB"
    return f"{value / 1e9:,.2f} GB" if value >= 1e9 else f"{value / 1e6:,.1f} MB"


def table(head: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in (head, rule, *lines))
