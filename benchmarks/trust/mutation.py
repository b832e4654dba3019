"""Mutants of the mathematics (posteriors, priors, curvature, gradients), and how many of them the tests kill.

Every mutant runs in a fork, with the tests that run its lines; the first failure kills it. One that is alive after a
minute of computing is undecided and counts as alive. What was tried is kept in out/trust-mutants.json, and a stopped
run goes on; survivors are tried again when the tests have changed.

The order is drawn at random with a fixed seed, and such that however many are tried, every room has its share: a part
of the run is a stratified sample, and an interval tells what it says of all mutants.
"""

import hashlib
import importlib.abc
import importlib.util
import json
import math
import os
import random
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..common import ROOT, write_json
from . import claim, goes_on
from .equivalent_mutants import EQUIVALENT
from .mutant_server import changes_functions_only, limited_fork, run_in_fork, try_mutants
from .mutants import Mutant, mutants_of

PACKAGE = ROOT / "src" / "infoform"
KEPT = ROOT / "out" / "trust-mutants.json"
LEAST = 0.9  # of the mutants that change something
QUICK = 4
# rooms and their files; a file belongs to the first that names it
ROOMS: dict[str, list[str]] = {
    "posteriors/inf": ["posteriors/inf/*.py"],
    "posteriors/kfac": ["posteriors/kfac/*.py"],
    "posteriors": ["posteriors/*.py"],
    "priors": ["priors/*.py"],
    "curvature": ["curvature/*.py"],
    "gradients": ["fitting/per_example_gradients/*.py"],
}
TESTS = [
    "tests/priors",
    "tests/curvature",
    "tests/posteriors",
    "tests/fitting/test_per_example_gradients.py",
    "tests/fitting/test_accumulate.py",
    "tests/planning/test_plan.py",
]


def run(*, quick: bool, seed: int) -> dict[str, Any]:
    """Return how many of all mutants, tried in an order drawn at random, the tests kill."""
    rooms = room_of_files()
    every = in_drawn_order({file: mutants_of(PACKAGE, PACKAGE / file) for file in sorted(rooms)}, rooms, seed)
    drawn = every[:QUICK] if quick else every
    _import_before_forks()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mutants.json" if quick else KEPT
        kept = _Kept(path, tests=_digest_of_tests())
        known = kept.read()
        _try([one for one in drawn if not kept.settled(known.get(one.key))], kept)
        known = kept.read()
    tried = [{**known[m.key], "room": rooms[m.file]} for m in drawn if m.key in known]
    return counted(tried, len(every)) | {"seed": seed}


def in_drawn_order(mutants: Mapping[str, Sequence[Mutant]], rooms: Mapping[str, str], seed: int) -> list[Mutant]:
    """Return the mutants of all files in a random order whose every beginning has of each room the share it has of all.

    Args:
        mutants: By file.
        rooms: The room of each file.
        seed: Of the order.
    """
    chance, placed = random.Random(seed), []
    for room in dict.fromkeys(rooms.values()):
        own = [one for file in mutants if rooms[file] == room for one in mutants[file]]
        chance.shuffle(own)
        placed += [((place + chance.random()) / len(own), one) for place, one in enumerate(own)]
    return [one for _, one in sorted(placed, key=lambda pair: pair[0])]


def room_of_files() -> dict[str, str]:
    """Return the files that mutants are made of, and the room of each."""
    found: dict[str, str] = {}
    for room, patterns in ROOMS.items():
        for file in (file for pattern in patterns for file in PACKAGE.glob(pattern)):
            found.setdefault(str(file.relative_to(PACKAGE)), room)
    return found


@dataclass
class _Kept:
    """Outcomes in a file, which the processes that try mutants write."""

    path: Path
    tests: str  # a digest of all tests: what survived others is tried again

    def read(self) -> dict[str, Any]:
        return json.loads(self.path.read_text()) if self.path.exists() else {}

    def settled(self, one: dict[str, Any] | None) -> bool:
        return one is not None and (one["outcome"] == "killed" or one["tests"] == self.tests)

    def add(self, mutant: Mutant, outcome: str, killer: str) -> None:
        one = {"file": mutant.file, "line": mutant.line, "code": mutant.code, "change": mutant.change}
        told = {"outcome": outcome, "killer": killer, "tests": self.tests}
        write_json(self.path, self.read() | {mutant.key: one | told})
        print(f"    {outcome}: {mutant.key}", flush=True)


def _try(mutants: list[Mutant], kept: _Kept) -> None:
    """Try mutants: in a process that collects the tests once, if only functions are changed."""
    if not mutants:
        return
    texts = {file: (PACKAGE / file).read_text(encoding="utf-8") for file in {one.file for one in mutants}}
    fast = [one for one in mutants if changes_functions_only(one, texts[one.file])]

    def serve() -> None:
        lines = KEPT.with_name("trust-lines.json")
        try_mutants(fast, PACKAGE, TESTS, kept.add, goes_on, kept=lines)

    if fast:
        run_in_fork(serve)
    tried = kept.read()
    last = max((place for place, one in enumerate(mutants) if one.key in tried), default=0)
    for place, mutant in enumerate(mutants):
        if mutant not in fast and (goes_on() or place < last):  # so that what was tried is a beginning of the order
            kept.add(mutant, *limited_fork(lambda tell: _run_tests(mutant)))  # noqa: B023


def counted(tried: list[dict[str, Any]], possible: int) -> dict[str, Any]:
    """Return the share of killed mutants, by room and in all, and what survived."""
    rooms, survivors, equivalent = {}, [], []
    for room in ROOMS:
        own = [one for one in tried if one["room"] == room]
        alive = [one for one in own if one["outcome"] != "killed"]
        same = [one for one in alive if reason(one)]
        equivalent += [_described(one) | {"reason": reason(one)} for one in same]
        survivors += [_described(one) for one in alive if not reason(one)]
        if own:
            count = len(own) - len(same)
            rooms[room] = {"tried": len(own), "killed": len(own) - len(alive), "equivalent": len(same),
                           "share": (len(own) - len(alive)) / count if count else 1.0}  # fmt: skip
    killed = sum(one["outcome"] == "killed" for one in tried)
    total = len(tried) - len(equivalent)
    figure = f"{killed:,} of {total:,} mutants that change something ({killed / max(1, total):.1%}"
    low, high = interval(killed, total) if len(tried) < possible else (None, None)
    if low is not None:
        figure += f"; of all, {low:.1%} to {high:.1%}, a 95% interval"
    return {
        "claims": [
            claim(
                f"tests kill at least {LEAST:.0%} of the mutants of the mathematics",
                total > 0 and killed >= LEAST * total,
                f"{figure})",
            )
        ],
        "possible": possible,
        "tried": len(tried),
        "interval": None if low is None else [low, high],
        "left": [f"{possible - len(tried):,} mutants"] if len(tried) < possible else [],
        "rooms": rooms,
        "survivors": survivors,
        "equivalent": equivalent,
    }


def interval(killed: int, total: int, *, deviations: float = 1.959964) -> tuple[float, float]:
    """Return Wilson's binomial interval of a share, 95 % where not said otherwise.

    |k/n − p| ≤ z √(p (1 − p) / n)                                     Wilson 1927
    """
    if total == 0:
        return 0.0, 1.0
    square = deviations**2
    middle = (killed + square / 2) / (total + square)
    half = deviations / (total + square) * math.sqrt(killed * (total - killed) / total + square / 4)
    return max(0.0, middle - half), min(1.0, middle + half)


def reason(one: dict[str, Any]) -> str:
    """Return why a mutant changes no result, or an empty text if it does."""
    told = f"{one['code']} | {one['change']}"
    return next((why for (file, part), why in EQUIVALENT.items() if one["file"] == file and part in told), "")


def _described(one: dict[str, Any]) -> dict[str, Any]:
    return {key: one[key] for key in ("room", "file", "line", "change", "outcome")} | {"change": one["change"][:160]}


def _digest_of_tests() -> str:
    digest = hashlib.sha256()
    for path in sorted(_test_files()):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _test_files() -> Iterable[Path]:
    yield from (ROOT / "tests").glob("*.py")
    for test in TESTS:
        yield from (ROOT / test).rglob("*.py") if (ROOT / test).is_dir() else (ROOT / test,)


def _import_before_forks() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    os.chdir(ROOT)
    for name in ("torch", "torch.func", "numpy", "pytest"):  # no plugin of pytest, which wants to import these itself
        importlib.import_module(name)
    for name in [one for one in sys.modules if one == "infoform" or one.startswith("infoform.")]:
        del sys.modules[name]  # forks import it again, with the mutant in it


def _run_tests(mutant: Mutant) -> None:
    """Run the tests with the mutant in the place of its file, and end the process with their result."""
    import pytest

    sys.meta_path.insert(0, _Replaced(mutant))
    os._exit(int(pytest.main([*TESTS, "-x", "-q", "-p", "no:cacheprovider", "-o", "faulthandler_timeout=0"])))


class _Replaced(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from the source of a mutant."""

    def __init__(self, mutant: Mutant) -> None:
        parts = Path(mutant.file).with_suffix("").parts
        self.package = parts[-1] == "__init__"
        self.name = ".".join(["infoform", *(parts[:-1] if self.package else parts)])
        self.source = mutant.source

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != self.name:
            return None
        return importlib.util.spec_from_loader(fullname, self, is_package=self.package)

    def exec_module(self, module: Any) -> None:
        file = PACKAGE / Path(*self.name.split(".")[1:])
        module.__file__ = str(file / "__init__.py") if self.package else f"{file}.py"
        if self.package:
            module.__path__ = [str(file)]
        exec(compile(self.source, module.__file__, "exec"), module.__dict__)
