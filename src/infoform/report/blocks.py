"""The parts that a page is made of; the template knows how to set each kind, and escapes every text in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    block: ClassVar[str] = "text"
    text: str
    style: str = ""  # "hint": smaller; "warning"


@dataclass(frozen=True)
class Sentences:
    """Findings, each of which stands for itself."""

    block: ClassVar[str] = "sentences"
    items: Sequence[str]


@dataclass(frozen=True)
class Card:
    """One number that matters."""

    value: str
    label: str
    note: str = ""  # the same number of the network alone, say


@dataclass(frozen=True)
class Cards:
    """Numbers side by side."""

    block: ClassVar[str] = "cards"
    items: Sequence[Card]


@dataclass(frozen=True)
class Table:
    """Texts in rows; the first column names the row."""

    block: ClassVar[str] = "table"
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    best: frozenset[tuple[int, int]] = frozenset()  # (row, column) to be marked
    title: str = ""


@dataclass(frozen=True)
class Step:
    """What a slider shows at one place: a sentence, and new values for some traces."""

    label: str
    sentence: str
    traces: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)  # number of the trace: what changes in it


@dataclass(frozen=True)
class Slider:
    """A choice that changes a chart."""

    label: str
    steps: Sequence[Step]
    start: int = 0


@dataclass(frozen=True)
class Chart:
    """A figure, a sentence that says what it shows, and the same as a table for those who do not see it."""

    block: ClassVar[str] = "chart"
    title: str
    says: str
    figure: Mapping[str, Any]  # as plotly.js takes it
    table: Table
    slider: Slider | None = None
    wide: bool = False


@dataclass(frozen=True)
class Example:
    """One input and what was said of it."""

    title: str
    lines: Sequence[str]
    png: str = ""  # base64
    mark: str = ""  # "right" or "wrong"


@dataclass(frozen=True)
class Gallery:
    """Some inputs beside each other."""

    block: ClassVar[str] = "gallery"
    title: str
    says: str
    examples: Sequence[Example]


@dataclass(frozen=True)
class Fold:
    """Something that only some readers want to see: tables and texts behind a line."""

    block: ClassVar[str] = "fold"
    title: str
    tables: Sequence[Table] = ()
    code: str = ""


@dataclass(frozen=True)
class Markup:
    """HTML that markdown-it-py made, with raw HTML escaped."""

    block: ClassVar[str] = "markup"
    html: str


Block = Text | Sentences | Cards | Table | Chart | Gallery | Fold | Markup


@dataclass(frozen=True)
class Section:
    """One question and its answer."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Panel:
    """One tab of the page: a run, an experiment, or the comparison of several."""

    title: str
    subtitle: str
    sections: Sequence[Section]
