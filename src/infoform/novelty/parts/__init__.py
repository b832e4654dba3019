"""Parts of novelty: to add one, write a file with a `Part` and a line in `PARTS`."""

from infoform.novelty.parts.answer import Answer
from infoform.novelty.parts.base import Part, Sight
from infoform.novelty.parts.head import Head
from infoform.novelty.parts.typicality import Typicality

PARTS: dict[str, Part] = {
    "typicality": Typicality(),
    "head": Head(),
    "answer": Answer(),
}

__all__ = ["PARTS", "Part", "Sight"]
