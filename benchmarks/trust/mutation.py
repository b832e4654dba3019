"""Mutants of the mathematics (posteriors, priors, curvature, gradients), and how many of them the tests kill.

Every mutant runs in a fork, with the tests of its room; the first failure kills it. One that is alive after a minute of
computing is undecided and counts as alive. What was tried is kept in out/trust-mutants.json, and a
stopped run goes on.
"""

import ast
import importlib.abc
import importlib.util
import json
import os
import random
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..common import ROOT, write_json
from . import claim
from .mutant_server import changes_functions_only, limited_fork, run_in_fork, try_mutants
from .mutants import Mutant, mutants_of

PACKAGE = ROOT / "src" / "infoform"
KEPT = ROOT / "out" / "trust-mutants.json"
LEAST = 0.9  # of the mutants that change something
SAMPLE, QUICK = 400, 4
ROUND = 50  # mutants at a time, of all rooms

# a room, its files, the tests that are run for them, and which of these: a file belongs to the first that names it
POSTERIORS = ["tests/posteriors"]
GRADIENTS = ["tests/fitting/test_per_example_gradients.py", "tests/fitting/test_accumulate.py", "tests/curvature"]
CHOSEN: list[tuple[str, str, list[str], str]] = [
    ("posteriors/inf", "posteriors/inf/structure.py", [*POSTERIORS, "tests/planning/test_plan.py"], "inf or plan"),
    ("posteriors/inf", "posteriors/inf/*.py", POSTERIORS, "inf or stiff or batched"),
    ("posteriors/kfac", "posteriors/kfac/*.py", POSTERIORS, "kfac"),
    ("posteriors", "posteriors/diag.py", POSTERIORS, "diag or stiff"),
    ("posteriors", "posteriors/row_blocks.py", POSTERIORS, "diag or stiff"),
    ("posteriors", "posteriors/efb.py", POSTERIORS, "efb"),
    ("posteriors", "posteriors/kronecker.py", POSTERIORS, "efb or kfac"),
    ("posteriors", "posteriors/full.py", POSTERIORS, "full"),
    ("posteriors", "posteriors/*.py", POSTERIORS, "diag or batched or log_bytes or inf"),
    ("priors", "priors/*.py", ["tests/priors"], ""),
    ("curvature", "curvature/*.py", ["tests/curvature"], ""),
    ("gradients", "fitting/per_example_gradients/*.py", GRADIENTS, ""),
]
# changes that no result shows: (file, a part of the change): reason
EQUIVALENT: dict[tuple[str, str], str] = {}


def run(*, quick: bool, seed: int) -> dict[str, Any]:
    """Return how many of some mutants, drawn at random, the tests kill."""
    places = {file: place for place in reversed(range(len(CHOSEN))) for file in PACKAGE.glob(CHOSEN[place][1])}
    every = [(places[file], mutant) for file in sorted(places) for mutant in mutants_of(PACKAGE, file)]
    drawn = list(every)
    random.Random(seed).shuffle(drawn)
    drawn = drawn[: QUICK if quick else SAMPLE]
    _import_before_forks()
    limit = float(os.environ.get("TRUST_MUTANT_SECONDS", "inf"))  # for a run within a time
    with tempfile.TemporaryDirectory() as folder:
        kept = _Kept(Path(folder) / "mutants.json" if quick else KEPT, ends=time.time() + limit)
        for start in range(0, len(drawn), ROUND):  # so that a run that is stopped has some of every room
            for place in range(len(CHOSEN)):
                own = [mutant for at, mutant in drawn[start : start + ROUND] if at == place]
                _try(place, [one for one in own if one.key not in kept.read()], kept)
        known = kept.read()
    tried = [known[m.key] for _, m in drawn if m.key in known]
    undecided = sum(one["outcome"] == "undecided" for one in tried)
    return _counted(tried, len(every)) | {"undecided": undecided, "drawn": len(drawn)}


@dataclass
class _Kept:
    """Outcomes in a file, which the processes that try mutants write."""

    path: Path
    ends: float  # when to begin no other mutant

    def read(self) -> dict[str, Any]:
        return json.loads(self.path.read_text()) if self.path.exists() else {}

    def add(self, key: str, place: int, outcome: str, **more: Any) -> None:
        write_json(self.path, self.read() | {key: {"room": CHOSEN[place][0], "outcome": outcome, **more}})
        print(f"    {outcome}: {key}", flush=True)


def _try(place: int, mutants: list[Mutant], kept: _Kept) -> None:
    """Try mutants of one choice of tests: in a process that collects the tests once, if only functions are changed."""
    if not mutants or time.time() > kept.ends:
        return
    texts = {file: (PACKAGE / file).read_text(encoding="utf-8") for file in {one.file for one in mutants}}
    fast = [one for one in mutants if changes_functions_only(one, texts[one.file])]
    unchanged = f"unchanged, {CHOSEN[place][1]}"
    if unchanged not in kept.read():  # its tests pass with the code as it is: else they would kill anything
        file = mutants[0].file
        fast.insert(0, replace(mutants[0], source=ast.unparse(ast.parse(texts[file])), change=unchanged))

    def told(mutant: Mutant, outcome: str, killer: str) -> None:
        key = mutant.key if mutant.change != unchanged else unchanged
        kept.add(key, place, outcome, killer=killer, **_described(mutant))

    def serve() -> None:
        try_mutants(fast, PACKAGE, _arguments(place), told, lambda: time.time() < kept.ends)

    if fast:
        run_in_fork(serve)
    if kept.read().get(unchanged, {}).get("outcome") == "killed":
        raise RuntimeError(f"the tests of {CHOSEN[place][1]} must pass with the code as it is, and do not.")
    for mutant in mutants:
        if mutant not in fast and time.time() < kept.ends:
            told(mutant, *limited_fork(lambda tell: _run_tests(place, mutant)))  # noqa: B023


def _counted(tried: list[dict[str, Any]], possible: int) -> dict[str, Any]:
    rooms, survivors = {}, []
    for room in dict.fromkeys(one[0] for one in CHOSEN):
        own = [one for one in tried if one["room"] == room]
        alive = [one for one in own if one["outcome"] != "killed"]
        same = [one for one in alive if _equivalent(one)]
        survivors += [one for one in alive if not _equivalent(one)]
        count = len(own) - len(same)
        if own:
            rooms[room] = {"tried": len(own), "killed": len(own) - len(alive), "equivalent": len(same),
                           "share": (len(own) - len(alive)) / count if count else 1.0}  # fmt: skip
    killed, equivalent = (sum(one[key] for one in rooms.values()) for key in ("killed", "equivalent"))
    total = len(tried) - equivalent
    said = f"{killed} of {total} mutants that change something"
    return {
        "claims": [claim(f"tests kill at least {LEAST:.0%} of the mutants of the mathematics",
                         total > 0 and killed >= LEAST * total, said)],
        "possible": possible,
        "tried": len(tried),
        "rooms": rooms,
        "survivors": survivors,
    }  # fmt: skip


def _equivalent(one: dict[str, Any]) -> bool:
    return any(one["file"] == file and part in one["change"] for file, part in EQUIVALENT)


def _described(mutant: Mutant) -> dict[str, Any]:
    return {"file": mutant.file, "line": mutant.line, "change": mutant.change[:160]}


def _import_before_forks() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    os.chdir(ROOT)
    for name in ("torch", "torch.func", "numpy", "pytest"):  # no plugin of pytest, which wants to import these itself
        importlib.import_module(name)
    for name in [one for one in sys.modules if one == "infoform" or one.startswith("infoform.")]:
        del sys.modules[name]  # forks import it again, with the mutant in it


def _arguments(place: int) -> list[str]:
    _, _, tests, chosen = CHOSEN[place]
    return [*dict.fromkeys(tests), *(["-k", chosen] if chosen else [])]


def _run_tests(place: int, mutant: Mutant) -> None:
    """Run the tests of a room with the mutant in the place of its file, and end the process with their result."""
    import pytest

    sys.meta_path.insert(0, _Replaced(mutant))
    os._exit(int(pytest.main([*_arguments(place), "-x", "-q", "-p", "no:cacheprovider", "-p", "no:faulthandler"])))


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
