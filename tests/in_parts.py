"""All tests in several processes at once, each of which takes the next file of tests that none has taken.

    python tests/in_parts.py JOBS COMMAND...     # COMMAND is that of pytest; what it says is shown line by line

The processes share an empty folder (`--share`): a file of tests belongs to the process that first makes a folder of its
number there. Within a process the files keep their order, so that what must run last (JAX) does.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest


def add_option(parser: pytest.Parser) -> None:
    parser.addoption("--share", metavar="FOLDER", help="run the files of tests that no other process has taken")


def run_share(session: pytest.Session) -> bool | None:
    """Run the files that this process takes; None where it was told of no other."""
    share = session.config.getoption("--share")
    if share is None or session.config.option.collectonly or session.testsfailed:
        return None
    before: pytest.Item | None = None
    for item in _taken(session.items, Path(share)):  # an item must know what follows it, for its fixtures
        if before is not None:
            _run(session, before, item)
        before = item
    if before is not None:
        _run(session, before, None)
    return True


def _taken(items: Sequence[pytest.Item], share: Path) -> Iterator[pytest.Item]:
    def group(item: pytest.Item) -> tuple[bool, Path]:
        return item.get_closest_marker("starts_jax") is not None, item.path

    for number, (_, own) in enumerate(groupby(items, group)):
        try:
            (share / str(number)).mkdir()
        except FileExistsError:
            continue
        yield from own


def _run(session: pytest.Session, item: pytest.Item, following: pytest.Item | None) -> None:
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)


def main(jobs: int, command: Sequence[str]) -> int:
    """Run the command in so many processes; return the first exit code that is not 0."""
    threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, (os.cpu_count() or 1) // jobs))
    environment = {**os.environ, "OMP_NUM_THREADS": threads}
    with tempfile.TemporaryDirectory() as share:
        given: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "env": environment}
        running = [subprocess.Popen([*command, f"--share={share}"], **given) for _ in range(jobs)]
        # a time-out ends the whole group of processes: what the others say then is still shown
        signal.signal(signal.SIGABRT, lambda *_: None)
        readers = [threading.Thread(target=_show, args=one) for one in enumerate(running, 1)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        codes = [process.wait() for process in running]
    none = pytest.ExitCode.NO_TESTS_COLLECTED  # all were taken by the others
    return next((abs(code) for code in codes if code not in (0, none)), 0 if 0 in codes else int(none))


def _show(number: int, process: "subprocess.Popen[bytes]") -> None:
    assert process.stdout is not None
    for line in process.stdout:
        sys.stdout.write(f"{number}: {line.decode(errors='replace')}")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
