"""A room imports only from rooms below it: docs/design.md draws them."""

import ast
from pathlib import Path

import pytest

import infoform

ROOMS = (  # lowest first; those on one line do not import each other
    ("version",),
    ("common",),
    ("layers",),
    ("network",),
    ("conformal",),
    ("prediction",),
    ("metrics",),
    ("likelihoods",),
    ("novelty",),
    ("curvature",),
    ("priors",),
    ("fitting",),
    ("posteriors",),
    ("predicting",),
    ("tuning", "planning"),
    ("options",),
    ("saved_schema",),
    ("deprecated_keywords", "fitted", "saved", "guarantee"),
    ("tuned", "export", "model_card"),
    ("pretrained",),
    ("laplace",),
    ("planner", "acquisition"),
    ("pages", "records"),
    ("baselines", "integrations", "data"),
    ("comparing",),
    ("report",),
    ("demo",),
    ("experiments",),
    ("cli",),
)
LEVELS = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}
ROOT = Path(infoform.__file__).parent


def imported_rooms(path: Path) -> set[str]:
    """Return the rooms that a file imports from, its own left out."""
    own = path.relative_to(ROOT).with_suffix("").parts[0]
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [f"{node.module}.{alias.name}" for alias in node.names] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        found |= {name.split(".")[1] for name in names if name.startswith("infoform.")}
    return found - {own, "__version__"}


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_room_imports_only_from_rooms_below_it(path: Path) -> None:
    own = path.relative_to(ROOT).with_suffix("").parts[0]
    if own != "__init__":  # which offers names of all rooms
        assert {room for room in imported_rooms(path) if LEVELS.get(room, len(ROOMS)) >= LEVELS[own]} == set()
