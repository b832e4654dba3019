"""The campaign: every part has a file, its page says what does not hold, and a mutant is one change."""

import ast
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.trust import PARTS, claim, line_coverage, page
from benchmarks.trust.equivalent_mutants import EQUIVALENT
from benchmarks.trust.mutants import Mutant, mutants_of
from benchmarks.trust.mutation import PACKAGE, ROOMS, TESTS, counted, in_drawn_order, interval, room_of_files

import bounded

SOURCE = '''
"""A module of 3 lines."""
LIMIT = 2**18

def area(width: int, height: int = 1) -> int:
    if width < 0:
        raise ValueError(f"width must be at least {0 + 0}, got {width}.")
    return width * height + 1
'''


def _result(holds: bool) -> dict[str, Any]:
    run = {"commit": "abc", "quick": False, "seconds": 3.0, "environment": {"date": "2026-01-01", "load": 1.0}}
    return {"threads": run | {"result": {"claims": [claim("answers are equal", holds, "9 of 9")]}}}


def test_a_mutant_is_one_change_of_arithmetic_and_no_change_of_messages_types_and_sizes(tmp_path: Path) -> None:
    (tmp_path / "area.py").write_text(SOURCE)
    found = {one.change for one in mutants_of(tmp_path, tmp_path / "area.py")}
    assert found == {
        "width < 0 → width <= 0", "0 → 1", "1 → 2", "width * height → width / height",
        "width * height + 1 → width * height - 1",
    }  # fmt: skip


def test_every_mutant_differs_from_the_source_and_is_python(tmp_path: Path) -> None:
    (tmp_path / "area.py").write_text(SOURCE)
    plain = ast.unparse(ast.parse(SOURCE))
    for mutant in mutants_of(tmp_path, tmp_path / "area.py"):
        assert mutant.source != plain
        compile(mutant.source, "area.py", "exec")


def test_every_mutant_has_a_key_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "area.py").write_text("def area(x):\n    return (x + 1) * (x + 1)\n")
    keys = [one.key for one in mutants_of(tmp_path, tmp_path / "area.py")]
    assert len(keys) == len(set(keys)) == 5
    assert "area.py:2: 1 → 2 (2)" in keys


def test_the_rooms_of_mutants_have_files_and_tests() -> None:
    assert set(room_of_files().values()) == set(ROOMS)
    assert all(list(PACKAGE.glob(pattern)) for patterns in ROOMS.values() for pattern in patterns)
    assert all((Path(__file__).parents[2] / test).exists() for test in TESTS)


SERVED = """
import sys
from pathlib import Path
from benchmarks.trust.mutant_server import changes_functions_only, try_mutants
from benchmarks.trust.mutants import Mutant, mutants_of

root = Path("house")
text = (root / "room.py").read_text()
mutants = [one for one in mutants_of(root.resolve(), (root / "room.py").resolve()) if changes_functions_only(one, text)]
told = lambda mutant, *end: print("told", mutant.change, *end, sep="|")
try_mutants(mutants, root.resolve(), ["test_room.py"], told, lambda: True, kept=Path("lines.json"))
"""
ROOM = """
from functools import cached_property

class Room:
    side: int = 1

    @cached_property
    def area(self):
        return self.side * 3

    def unused(self, other=2):
        return other + 4

def twice(x):
    return [one + one for one in x]

def both(x):
    if x > 5:
        return (
            x
            + 7
        )
    return x - x
"""


def test_a_server_puts_mutants_into_living_functions(tmp_path: Path) -> None:
    (tmp_path / "house").mkdir()
    (tmp_path / "house" / "__init__.py").write_text("")
    (tmp_path / "house" / "room.py").write_text(ROOM)
    tests = "from house.room import Room, both, twice\n\ndef test_area():\n    assert Room().area == 3\n\n"
    tests += "def test_twice():\n    assert twice([2, 3]) == [4, 6]\n\ndef test_less():\n    assert both(2) == 0\n"
    (tmp_path / "test_room.py").write_text(tests)
    path = os.pathsep.join([str(Path(__file__).parents[2]), str(tmp_path)])
    environment = {**os.environ, "PYTHONPATH": path}
    done = bounded.run([sys.executable, "-c", SERVED], cwd=tmp_path, env=environment, check=True)
    told = {line.split("|")[1]: line.split("|")[2:] for line in done.stdout.splitlines() if line.startswith("told")}
    assert told == {
        "self.side * 3 → self.side / 3": ["killed", "test_room.py::test_area"],
        "3 → 4": ["killed", "test_room.py::test_area"],
        "one + one → one - one": ["killed", "test_room.py::test_twice"],
        "other + 4 → other - 4": ["not run", ""],
        "4 → 5": ["not run", ""],
        "x > 5 → x >= 5": ["survived", ""],
        "5 → 6": ["survived", ""],
        "x + 7 → x - 7": ["not run", ""],
        "7 → 8": ["not run", ""],
        "x - x → x + x": ["killed", "test_room.py::test_less"],
    }
    runs = json.loads((tmp_path / "lines.json").read_text())
    assert list(runs["seconds"]) == [f"test_room.py::{name}" for name in ("test_area", "test_twice", "test_less")]
    assert {2} in map(set, runs["lines"]["room.py"].values())  # lines that the third test alone runs


@pytest.mark.parametrize(("lines", "branches", "code"), [(95, 90, 0), (94, 90, 1), (95, 89, 1)])
def test_too_few_lines_or_branches_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: int, branches: int, code: int
) -> None:
    totals = {"covered_lines": lines, "num_statements": 100, "covered_branches": branches, "num_branches": 100}
    files = {"some.py": {"summary": {"missing_lines": 100 - lines}}}
    (tmp_path / "report.json").write_text(json.dumps({"totals": totals, "files": files}))
    assert line_coverage.main(str(tmp_path / "report.json")) == code
    assert line_coverage.main(str(tmp_path / "report.json"), only_report=True) == 0
    assert capsys.readouterr().out.startswith(f"{lines}.0 % of 100 lines and {branches}.0 % of 100 branches")


def test_survivors_lower_the_share_of_killed_mutants() -> None:
    mutant = {"room": "priors", "file": "priors/base.py", "line": 1, "code": "x + 1", "change": "1 → 2"}
    found = counted([mutant | {"outcome": outcome} for outcome in ["killed"] * 3 + ["not run"]], possible=9)
    assert found["rooms"]["priors"]["share"] == 0.75
    assert not found["claims"][0]["holds"]
    assert len(found["survivors"]) == 1
    assert found["left"] == ["5 mutants"]
    assert found["interval"] == list(interval(3, 4))
    assert "30.1% to 95.4%" in found["claims"][0]["figure"]
    assert counted([mutant | {"outcome": "killed"}], possible=1)["interval"] is None
    run = _result(True)["threads"] | {"result": found | {"seed": 0}}
    text = page.page({"mutation": run})
    assert "`priors/base.py`, line 1: `1 → 2` (no test runs the line)" in text
    assert "- Mutants that the tests kill: 5 mutants" in text


def test_every_beginning_of_the_drawn_order_has_its_share_of_each_room() -> None:
    files = {"a.py": 30, "b.py": 70, "c.py": 900}
    rooms = {"a.py": "small", "b.py": "small", "c.py": "large"}
    mutants = {file: [Mutant(file, line, "", "") for line in range(count)] for file, count in files.items()}
    order = in_drawn_order(mutants, rooms, seed=0)
    assert sorted((one.file, one.line) for one in order) == [
        (f, line) for f, count in files.items() for line in range(count)
    ]
    for count in (100, 333, 700):
        assert abs(sum(rooms[one.file] == "small" for one in order[:count]) - count / 10) <= 2
    assert order == in_drawn_order(mutants, rooms, seed=0)
    assert order != in_drawn_order(mutants, rooms, seed=1)


@pytest.mark.parametrize(("killed", "total"), [(0, 5), (5, 5), (90, 100), (731, 800)])
def test_the_ends_of_the_interval_are_the_shares_that_the_count_just_allows(killed: int, total: int) -> None:
    for share in interval(killed, total):
        spread = 1.959964 * math.sqrt(share * (1 - share) / total)
        assert abs(killed / total - share) == pytest.approx(spread, abs=1e-12) or share in (0.0, 1.0)
    low, high = interval(killed, total)
    assert low <= killed / total <= high
    assert low < high


def test_equivalent_mutants_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = {"room": "priors", "file": "priors/base.py", "line": 1, "code": "step = 1", "change": "1 → 2"}
    monkeypatch.setitem(EQUIVALENT, ("priors/base.py", "step = 1"), "a bound of chunks")
    killed = mutant | {"code": "step = 1", "change": "3 → 4", "outcome": "killed"}
    found = counted([mutant | {"outcome": "survived"}, killed], possible=2)
    assert found["rooms"]["priors"] == {"tried": 2, "killed": 1, "equivalent": 1, "share": 1.0}
    assert found["claims"][0]["holds"]
    assert [one["reason"] for one in found["equivalent"]] == ["a bound of chunks"]


def test_equivalent_mutants_are_mutants() -> None:
    every = {file: mutants_of(PACKAGE, PACKAGE / file) for file, _ in EQUIVALENT}
    for file, part in EQUIVALENT:
        assert any(part in f"{one.code} | {one.change}" for one in every[file]), (file, part)


@pytest.mark.parametrize(("holds", "said"), [(True, "1 of 1 claims hold"), (False, "0 of 1 claims hold")])
def test_the_page_says_first_how_much_holds(holds: bool, said: str) -> None:
    text = page.page(_result(holds))
    assert said in text.split("##")[0]
    assert ("**no**" in text) == (not holds)
    assert "Not run yet: " + "; ".join(name for key, name in PARTS.items() if key != "threads") in text
