"""Numbers as pages write them: rounded, with a unit or an error, and `–` for what is not known."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean, stdev
from typing import Any

UNKNOWN = "–"


def mean_std(values: Sequence[float], digits: int = 3) -> str:
    """Return `mean ± standard deviation` (of one value: the value)."""
    if len(values) < 2:
        return f"{values[0]:.{digits}f}"
    return f"{mean(values):.{digits}f} ± {stdev(values):.{digits}f}"


def mean_error(values: Sequence[float], digits: int = 3) -> str:
    """Return `mean ± standard error of the mean` (of one value: the value)."""
    if len(values) < 2:
        return f"{values[0]:.{digits}f}"
    return f"{mean(values):.{digits}f} ± {stdev(values) / len(values) ** 0.5:.{digits}f}"


def number(value: float | None, unit: str = "") -> str:
    """Return about three digits and the unit."""
    if value is None:
        return UNKNOWN
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}{unit}"


def size(count: float | None) -> str:
    """Return a number of bytes in kB, MB or GB, which are powers of ten."""
    if count is None:
        return UNKNOWN
    if count < 1e6:
        return f"{count / 1e3:,.0f} kB"
    return f"{count / 1e9:,.2f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"


def duration(seconds: float) -> str:
    """Return seconds, or minutes from two of them on."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def count_of(held: Iterable[bool]) -> str:
    """Return `n of N`: how many of these are true."""
    values = list(held)
    return f"{sum(values)} of {len(values)}"


def signed_range(values: Sequence[float], digits: int = 2) -> str:
    """Return `from the least to the largest`, both with their sign (of equal ones: the value)."""
    least, most = (f"{value:+.{digits}f}" for value in (min(values), max(values)))
    return least if least == most else f"{least} to {most}"


def span(values: Sequence[float], form: str = ".2f") -> str:
    """Return `from the least to the largest` (of equal ones: the value)."""
    least, most = (format(value, form) for value in (min(values), max(values)))
    return least if least == most else f"{least} to {most}"


def listed(names: Sequence[str]) -> str:
    """Return names as a sentence has them: `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def setting(value: Any) -> str:
    """Return the value of a setting: short numbers, lists in brackets."""
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(setting, value)) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {setting(one)}" for name, one in value.items()) + "}"
    return f"{value:g}" if isinstance(value, float) else str(value)
