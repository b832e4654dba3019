"""Parts of a page in Markdown: tables, bold cells, lists of facts, and what is folded."""

from collections.abc import Iterable, Mapping, Sequence

from infoform.pages.numbers import setting


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, words: int = 1) -> str:
    """Return a table; the first `words` columns are aligned left, all others right."""
    rule = ["---"] * words + ["---:"] * (len(header) - words)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *rows))


def bold_best(cells: Sequence[str], values: Sequence[float], *, largest: bool = False) -> list[str]:
    """Return the cells with those of the best value in bold."""
    best = max(values) if largest else min(values)
    return [f"**{cell}**" if value == best else cell for cell, value in zip(cells, values, strict=True)]


def bullets(lines: Iterable[str]) -> str:
    """Return a list, an item a line."""
    return "\n".join(f"- {line}" for line in lines)


def facts(values: Mapping[str, object]) -> str:
    """Return a list of settings or versions, a `name = value` each."""
    return bullets(f"{name} = {setting(value)}" for name, value in values.items())


def folded(summary: str, body: str) -> str:
    """Return a part that shows its summary alone until it is opened, on the site and on GitHub."""
    return f'<details markdown="1">\n<summary>{summary}</summary>\n\n{body}\n\n</details>'
