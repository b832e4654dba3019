"""Mutants of the mathematics (posteriors, priors, curvature, gradients), and how many of them the tests kill.

Every mutant runs in a fork of a process that has imported torch, with the tests of its room; the first failure kills
it. One whose tests take too long is not counted. What was tried is kept in out/trust-mutants.json, and a stopped run
goes on.
"""

import ast
import importlib.abc
import importlib.util
import json
import os
import random
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..common import ROOT, write_json
from . import claim
from .mutants import Mutant, mutants_of

PACKAGE = ROOT / "src" / "infoform"
KEPT = ROOT / "out" / "trust-mutants.json"
SECONDS = 400  # for the tests of one mutant
LEAST = 0.9  # of the mutants that change something
SAMPLE, QUICK = 400, 4

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
    known: dict[str, Any] = {} if quick or not KEPT.exists() else json.loads(KEPT.read_text())
    _import_before_forks()
    limit = float(os.environ.get("TRUST_MUTANT_SECONDS", "inf"))  # for a run within a time
    started = time.time()
    for place, mutant in drawn:
        if mutant.key in known or time.time() - started > limit:
            continue
        _check_unchanged(place, mutant, known)
        known[mutant.key] = {"room": CHOSEN[place][0], "outcome": _outcome(place, mutant), **_described(mutant)}
        if not quick:
            write_json(KEPT, known)
        print(f"    {known[mutant.key]['outcome']}: {mutant.key}", flush=True)
    tried = [known[m.key] for _, m in drawn if m.key in known and known[m.key]["outcome"] != "undecided"]
    return _counted(tried, len(every))


def _check_unchanged(place: int, mutant: Mutant, known: dict[str, Any]) -> None:
    """See once for every choice of tests that they pass with the code as it is: else they would kill anything."""
    key = f"unchanged, {CHOSEN[place][1]}"
    if key not in known:
        source = ast.unparse(ast.parse((PACKAGE / mutant.file).read_text(encoding="utf-8")))
        known[key] = {"room": "", "outcome": _outcome(place, replace(mutant, source=source), seconds=3600)}
        print(f"    {known[key]['outcome']}: {key}", flush=True)
    if known[key]["outcome"] != "survived":
        raise RuntimeError(f"the tests of {CHOSEN[place][1]} must pass with the code as it is, and do not.")


def _counted(tried: list[dict[str, Any]], possible: int) -> dict[str, Any]:
    rooms, survivors = {}, []
    for room in dict.fromkeys(one[0] for one in CHOSEN):
        own = [one for one in tried if one["room"] == room]
        alive = [one for one in own if one["outcome"] == "survived"]
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


def _outcome(place: int, mutant: Mutant, *, seconds: float = SECONDS) -> str:
    """Return "killed", "survived", or "undecided" where the time was up."""
    child = os.fork()
    if child == 0:
        _run_tests(place, mutant)
    ends = time.time() + seconds
    while time.time() < ends:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return "survived" if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0 else "killed"
        time.sleep(0.2)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "undecided"


def _run_tests(place: int, mutant: Mutant) -> None:
    """Run the tests of a room with the mutant in the place of its file, and end the process with their result."""
    import pytest

    try:
        out = os.open(os.devnull, os.O_WRONLY)
        os.dup2(out, 1)
        os.dup2(out, 2)
        sys.meta_path.insert(0, _Replaced(mutant))
        _, _, tests, chosen = CHOSEN[place]
        options = ["-x", "-q", "-p", "no:cacheprovider", *(["-k", chosen] if chosen else [])]
        code = int(pytest.main([*dict.fromkeys(tests), *options]))
    except BaseException:
        code = 1
    os._exit(code)


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
