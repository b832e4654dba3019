"""Runs tests against one mutant after the other, without collecting them anew.

A process imports the package and collects the tests once. A first fork runs all of them as the code is, and notes
which lines of the mutants' files each test runs, and for how long. For every mutant the process forks again, and the
child puts the mutant's code into the functions that were changed (their `__code__`), wherever these are held by now.
Only the tests that run the changed lines are tried: those first that have killed a mutant of the same file before, then
the fast ones.
"""

import ast
import gc
import hashlib
import inspect
import json
import os
import resource
import signal
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from .mutants import Mutant

Told = Callable[[Mutant, str, str], None]  # a mutant, its outcome, and the test that killed it
CPU_SECONDS = 60  # for the tests of one mutant
SLOWER = 20  # at most so many times as long, on a busy machine


def changes_functions_only(mutant: Mutant, original: str) -> bool:
    """Whether the mutant differs from its file only inside of functions and methods."""
    one, other = (_emptied(source) for source in (mutant.source, original))
    return one == other


def try_mutants(
    mutants: Sequence[Mutant],
    root: Path,
    tests: Sequence[str],
    told: Told,
    goes_on: Callable[[], bool],
    *,
    kept: Path | None = None,
) -> None:
    """Run tests against mutants, and tell the outcome of each: "killed", "survived", "not run" or "undecided".

    Args:
        mutants: That change functions only; see `changes_functions_only`.
        root: The folder of the package.
        tests: Arguments of pytest that choose the tests.
        told: Called with every mutant, its outcome, and the test that killed it.
        goes_on: Whether to begin another mutant.
        kept: A file that keeps which lines every test runs, for a run that is stopped and begun again.
    """
    import pytest

    plugin = _Plugin(mutants, root, told, goes_on, kept)
    pytest.main(
        [*tests, "-s", "-q", "-x", "--tb=no", "-p", "no:cacheprovider", "-o", "faulthandler_timeout=0"],
        plugins=[plugin],
    )
    if not plugin.ran:
        raise RuntimeError(f"pytest collects no tests of {' '.join(tests)}.")


class _Plugin:
    def __init__(
        self, mutants: Sequence[Mutant], root: Path, told: Told, goes_on: Callable[[], bool], kept: Path | None
    ) -> None:
        self.mutants, self.root, self.told, self.goes_on, self.kept = mutants, root, told, goes_on, kept
        self.ran = False

    def pytest_runtestloop(self, session: Any) -> bool:
        if not session.items or not self.mutants:
            self.ran = bool(session.items)
            return True
        runs = _lines_that_tests_run(session, self.root, self.kept)
        self.ran = True
        functions = _functions_of(self.root)
        killers: defaultdict[str, Counter[str]] = defaultdict(Counter)
        gc.collect()
        gc.freeze()  # or every child would copy what its collector looks at
        for mutant in self.mutants:
            if not self.goes_on():
                break
            reaching = runs.tests(mutant)
            items = [item for item in session.items if item.nodeid in reaching]
            items.sort(key=lambda item: (-killers[mutant.file][item.nodeid], runs.seconds[item.nodeid]))
            if not items:
                self.told(mutant, "not run", "")
                continue
            outcome, killer = limited_fork(lambda tell: _run(session, items, mutant, self.root, functions, tell))  # noqa: B023
            if killer:
                killers[mutant.file][killer] += 1
            self.told(mutant, outcome, killer)
        return True


class _Runs:
    """Which tests run which lines, and for how long."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.seconds: dict[str, float] = found["seconds"]
        self._names = list(self.seconds)
        self._lines: dict[str, dict[str, list[int]]] = found["lines"]

    def tests(self, mutant: Mutant) -> set[str]:
        lines = self._lines.get(mutant.file, {})
        first, last = mutant.lines
        return {self._names[test] for line in range(first, last + 1) for test in lines.get(str(line), ())}


def _lines_that_tests_run(session: Any, root: Path, kept: Path | None) -> _Runs:
    """Run all tests in a fork, once for the same code and tests."""
    same = hashlib.sha256()
    for path in sorted({*root.rglob("*.py"), *(Path(item.path) for item in session.items)}):
        same.update(path.read_bytes())
    same.update("\n".join(item.nodeid for item in session.items).encode())
    if kept is not None and kept.exists():
        found = json.loads(kept.read_text())
        if found["of"] == same.hexdigest():
            return _Runs(found)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.json"
        run_in_fork(lambda: _silently(lambda: path.write_text(json.dumps(_run_and_watch(session, root)))))
        found = json.loads(path.read_text()) | {"of": same.hexdigest()}
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(found))
    return _Runs(found)


def _silently(work: Callable[[], object]) -> None:
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    work()


def _run_and_watch(session: Any, root: Path) -> dict[str, Any]:
    import coverage

    watch = coverage.Coverage(data_file=None, config_file=False, include=[f"{root}/*"], messages=False)
    watch.start()
    seconds = {}
    for item, following in zip(session.items, [*session.items[1:], None], strict=True):
        watch.switch_context(item.nodeid)
        begun = time.process_time()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        seconds[item.nodeid] = round(time.process_time() - begun, 4)
        if session.testsfailed:
            raise RuntimeError(f"{item.nodeid} must pass with the code as it is, and does not.")
    watch.stop()
    data, number = watch.get_data(), {name: place for place, name in enumerate(seconds)}
    lines = {
        str(Path(file).relative_to(root)): {
            line: sorted(number[name] for name in names if name in number)
            for line, names in data.contexts_by_lineno(file).items()
        }
        for file in data.measured_files()
    }
    return {"seconds": seconds, "lines": lines}


def _functions_of(root: Path) -> dict[tuple[str, str], list[FunctionType]]:
    """Return all functions of the package that live now, by file and qualified name."""
    found = defaultdict(list)
    for one in gc.get_objects():
        # isinstance would ask objects for a __class__, at which some of torch warn
        if type(one) is FunctionType and one.__code__.co_filename.startswith(str(root)):
            found[one.__code__.co_filename, _qualified(one.__code__)].append(one)
    return found


def _run(
    session: Any, items: list[Any], mutant: Mutant, root: Path, functions: Any, tell: Callable[[str], object]
) -> None:
    path = str(root / mutant.file)
    for code in _codes(compile(mutant.source, path, "exec", dont_inherit=True)):
        for function in functions.get((path, _qualified(code)), ()):
            if code.co_freevars == function.__code__.co_freevars:
                function.__code__ = code
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            tell(item.nodeid)
            os._exit(1)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of functions and of methods of classes, but not of what functions define inside."""
    for one in code.co_consts:
        if isinstance(one, CodeType):
            if one.co_flags & inspect.CO_NEWLOCALS:
                yield one
            else:  # the body of a class
                yield from _codes(one)


def _qualified(code: CodeType) -> str:
    name: str = getattr(code, "co_qualname", code.co_name)  # from Python 3.11 on
    return name


def _emptied(source: str) -> str:
    """Return a source without the bodies of its functions."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.body = [ast.Pass()]
    return ast.unparse(tree)


def run_in_fork(work: Callable[[], object]) -> None:
    """Do something in a child; raise an error if it fails."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    if os.waitpid(child, 0)[1]:
        raise RuntimeError("the process that tries mutants has failed.")


def limited_fork(work: Callable[[Callable[[str], object]], None]) -> tuple[str, str]:
    """Do something in a child that kills a mutant if it fails; return the outcome, and what the child told."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        silence = os.open(os.devnull, os.O_RDWR)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 5))
        code = 1
        try:
            work(lambda text: os.write(writes, text.encode()))
            code = 0
        finally:
            os._exit(code)
    os.close(writes)
    status = _waited(child, CPU_SECONDS * SLOWER)
    killer = os.read(reads, 4096).decode()
    os.close(reads)
    if os.WIFSIGNALED(status):
        by_time = os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)
        return ("undecided" if by_time else "killed"), ""
    return ("survived" if os.WEXITSTATUS(status) == 0 else "killed"), killer


def _waited(child: int, seconds: float) -> int:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]
