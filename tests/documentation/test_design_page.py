"""The drawing and the table of docs/design.md have every room of the package, and no other."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "infoform"
DESIGN = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
DRAWING = (ROOT / "docs" / "images" / "rooms.svg").read_text(encoding="utf-8")
ROOMS = {f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")}


def rooms_of(text: str) -> set[str]:
    """Return the folders and modules of the package that a text names."""
    return set(re.findall(r"\b[a-z]+(?:/(?![\w>])|\.py\b)", text))


def test_the_drawing_has_every_room() -> None:
    named = rooms_of(re.sub(r"<style>.*?</style>", "", DRAWING, flags=re.DOTALL))
    assert named >= ROOMS
    assert all((PACKAGE / name).exists() for name in named)


def test_the_table_has_every_room() -> None:
    table = DESIGN.partition("## What is in which room")[2].partition("\n\n|")[2].partition("\n\n")[0]
    first = "".join(line.split("|")[1] for line in table.splitlines()[1:] if line.startswith("|"))
    assert rooms_of(first) >= ROOMS
    assert all((PACKAGE / name).exists() for name in rooms_of(first))


@pytest.mark.parametrize("line", re.findall(r"^\| an? .*?$", DESIGN, flags=re.MULTILINE))
def test_what_is_to_be_added_has_its_table(line: str) -> None:
    folder, table, home = re.findall(r"`([^`]+)`", line)
    assert (PACKAGE / folder).is_dir()
    assert re.search(rf"^{table}\b.*=", (PACKAGE / home).read_text(encoding="utf-8"), flags=re.MULTILINE)
