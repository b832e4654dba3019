"""Several processes share all tests: each test runs once, and a failure in any of them is told."""

import os
import sys
from pathlib import Path

import pytest

import bounded
import in_parts

CONFTEST = """
import in_parts

pytest_addoption, pytest_runtestloop = in_parts.add_option, in_parts.run_share
"""
TESTS = """
import os, pathlib, time
import pytest

@pytest.mark.parametrize("number", range(3))
def test_that_leaves_a_name(number):
    with open("ran.txt", "a") as log:
        log.write(f"{pathlib.Path(__file__).stem} {number} {os.getpid()}\\n")
    time.sleep(0.05)
"""
FILES, JOBS = 6, 2


@pytest.mark.parametrize("fails", [False, True])
def test_processes_that_share_the_tests_run_each_once(tmp_path: Path, fails: bool) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for number in range(FILES):
        (tmp_path / f"test_{number}.py").write_text(TESTS)
    if fails:
        (tmp_path / "test_6.py").write_text("def test_that_fails():\n    assert False\n")
    command = [
        sys.executable,
        in_parts.__file__,
        str(JOBS),
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
    ]
    path = os.pathsep.join([str(Path(in_parts.__file__).parent), os.environ.get("PYTHONPATH", "")])
    done = bounded.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == int(fails), done.stdout
    assert ("test_that_fails" in done.stdout) == fails
    ran = [line.rsplit(" ", 1) for line in (tmp_path / "ran.txt").read_text().splitlines()]
    assert sorted(name for name, _ in ran) == sorted(
        f"test_{file} {part}" for file in range(FILES) for part in range(3)
    )
    files = {(name.split()[0], process) for name, process in ran}
    assert len(files) == FILES  # no file in two processes
