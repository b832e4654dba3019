"""Tables of Markdown, and numbers in them."""

from collections.abc import Iterable, Sequence
from statistics import mean, stdev


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; all columns but the first are aligned right."""
    rule = ["---", *(["---:"] * (len(header) - 1))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *rows))


def mean_std(values: Sequence[float], digits: int = 3) -> str:
    """Return `mean ± standard deviation` (of one value: the value)."""
    if len(values) < 2:
        return f"{values[0]:.{digits}f}"
    return f"{mean(values):.{digits}f} ± {stdev(values):.{digits}f}"


def bold_best(cells: Sequence[str], values: Sequence[float], *, largest: bool = False) -> list[str]:
    """Return the cells with those of the best value in bold."""
    best = max(values) if largest else min(values)
    return [f"**{cell}**" if value == best else cell for cell, value in zip(cells, values, strict=True)]
