"""Templates of pages: Markdown with `$names`, whose values are computed from results.

A template holds the prose, and no number that a result has. Three rules keep the functions that fill it small:

- every name of the template has a value, and every value has its place;
- a paragraph with a name whose value is None is left out, and so is a heading with nothing left below it;
- `<!-- part: NAME -->` begins a part that the page repeats, a section for each network, say: `part("NAME").fill(...)`.
"""

import re
from pathlib import Path
from string import Template

_PART = re.compile(r"^<!-- part: (\w+) -->\n", re.MULTILINE)
_HEADING = re.compile(r"(#+) ")


class PageTemplate:
    """A page, or a part of one, with names in the places of results.

    Args:
        text: Markdown with `$name` or `${name}` where a value belongs; `$$` is a dollar sign.

    Example:
        >>> from infoform.pages.template import PageTemplate
        >>> PageTemplate("Of $count networks $best is the best.").fill(count=3, best="`inf`")
        'Of 3 networks `inf` is the best.'
    """

    def __init__(self, text: str) -> None:
        main, *parts = _PART.split(text)
        self._text = main.strip()
        self._parts = dict(zip(parts[::2], parts[1::2], strict=True))

    @classmethod
    def read(cls, path: Path) -> "PageTemplate":
        """Read a template from its file."""
        return cls(path.read_text(encoding="utf-8"))

    @classmethod
    def beside(cls, module: str) -> "PageTemplate":
        """Read the template that lies beside a module and has its name: `page.md` beside `page.py`."""
        return cls.read(Path(module).with_suffix(".md"))

    def part(self, name: str) -> "PageTemplate":
        """Return a part that the page repeats."""
        if name not in self._parts:
            raise ValueError(f"the template has the parts {', '.join(self._parts) or 'none'}, got {name!r}.")
        return PageTemplate(self._parts[name])

    @property
    def names(self) -> set[str]:
        """The names that need a value."""
        found = Template.pattern.finditer(self._text)
        return {name for one in found if (name := one.group("named") or one.group("braced"))}

    def fill(self, **values: object) -> str:
        """Return the text with a value for every name; None leaves out the paragraphs that have the name."""
        if self.names != values.keys():
            missing, unused = self.names - values.keys(), values.keys() - self.names
            raise ValueError(
                f"a template needs a value for every name and no other, got none for {sorted(missing)} and some for "
                f"{sorted(unused)}, which it does not have."
            )
        without = {name for name, value in values.items() if value is None}
        paragraphs = [
            Template(paragraph).substitute(values)
            for paragraph in re.split(r"\n{2,}", self._text)
            if not PageTemplate(paragraph).names & without
        ]
        return "\n\n".join(_without_empty_sections(paragraphs))


def _without_empty_sections(paragraphs: list[str]) -> list[str]:
    """Leave out headings that are followed by one of the same or a higher level, or by nothing."""
    kept: list[str] = []
    for paragraph in reversed(paragraphs):
        heading = None if "\n" in paragraph else _HEADING.match(paragraph)
        below = _HEADING.match(kept[-1]) if kept else None
        if heading and (not kept or (below and len(below[1]) <= len(heading[1]))):
            continue
        if paragraph.strip():
            kept.append(paragraph)
    return kept[::-1]
