"""Numbers from rows: medians and ratios. Nothing is measured here."""

from collections.abc import Iterable
from statistics import median

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
    return float(median(sum(times) for times in zip(*(parts[name] for name in names), strict=True)))


def ratio(row: Row, upto: str = "posterior") -> float | None:
    """Return that time in plain passes of the same run."""
    took = seconds(row, upto)
    return None if took is None or not row.get("plain_seconds") else took / median(row["plain_seconds"])


def sampled(row: Row) -> float | None:
    """Return the ratio with a first sample, for those that can draw one."""
    return ratio(row, "sample") if row.get("seconds", {}).get("sample") else None
