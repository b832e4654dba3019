"""Nothing that the tests wait for is waited for without an end."""

import ast
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

import bounded
from placed_kills import CleanProcess

TESTS = Path(__file__).parent
FORKS = ("bounded.py", "processes.py", "killed_processes.py")  # which set an alarm in each child
RUNNER = "in_parts.py"  # waits for pytest itself, which ends a test that hangs


def test_a_command_that_does_not_end_is_killed_with_its_children(tmp_path: Path) -> None:
    code = "import os, time; child = os.fork(); open('child', 'w').write(str(child)) if child else 0; time.sleep(99)"
    with pytest.raises(AssertionError, match="took more than 3 s"):
        bounded.run([sys.executable, "-c", code], seconds=3, cwd=tmp_path)
    child = int((tmp_path / "child").read_text())
    assert any(_is_gone(child) or time.sleep(0.05) for _ in range(200))  # type: ignore[func-returns-value]


def _is_gone(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")")[-1].split()[0] == "Z"
    except OSError:
        return True


def test_a_fork_that_does_not_end_is_killed() -> None:
    assert bounded.end_of(bounded.fork(lambda: time.sleep(99), seconds=1)) == -signal.SIGALRM


def test_a_fork_that_waits_for_a_lock_of_another_thread_is_killed() -> None:
    held = threading.Lock()
    with held:
        assert bounded.end_of(bounded.fork(held.acquire, seconds=1)) == -signal.SIGALRM


def test_a_thread_that_does_not_end_fails_its_test() -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, daemon=True)
    thread.start()
    with pytest.raises(AssertionError, match="has not ended"):
        bounded.join(thread, seconds=0.1)
    stop.set()


def test_a_command_that_hangs_is_an_error_with_a_stack_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "waits.py").write_text("import time\ntime.sleep(99)\n")
    with CleanProcess(longest=10) as process:
        began = time.monotonic()
        with pytest.raises(TimeoutError, match=r"took more than 10 seconds: run fit run --model waits\.py:model"):
            process.run(["fit", "run", "--model", "waits.py:model", "--data", "x.csv"])
        assert time.monotonic() - began < 60
        assert process._process.poll() is None  # the process itself goes on
    said = capfd.readouterr().err
    assert said.startswith("Timeout")
    assert "in answer_requests" in said


def test_a_process_that_does_not_answer_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("placed_kills.GRACE", 1)
    process = CleanProcess(longest=1)
    os.kill(process._process.pid, signal.SIGSTOP)
    with pytest.raises(TimeoutError, match="did not answer: run --version"):
        process.run(["--version"])
    assert process._process.returncode == -signal.SIGKILL
    process.close()


def test_a_test_that_hangs_ends_the_run_with_a_stack_trace(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("import time\ndef test_it():\n    time.sleep(99)\n")
    configuration = ["-c", str(TESTS.parent / "pyproject.toml"), "--rootdir", str(tmp_path)]
    limit = ["-o", "faulthandler_timeout=1", "-p", "no:cacheprovider", "-p", "no:anyio"]
    done = bounded.run([sys.executable, "-m", "pytest", *configuration, *limit, "test_it.py"], cwd=tmp_path, seconds=60)
    assert done.returncode == 1
    assert 'test_it.py", line 3 in test_it' in done.stderr


def test_no_test_waits_without_an_end() -> None:
    """Subprocesses have a time-out, threads are joined with one, and processes fork where an alarm is set."""
    found = [
        f"{path.relative_to(TESTS)}:{node.lineno}: {ast.unparse(node.func)}"
        for path in sorted(TESTS.rglob("*.py"))
        if path.name not in (*FORKS, RUNNER)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and _waits_for_ever(node)
    ]
    assert not found, "use bounded.py: " + ", ".join(found)


def _waits_for_ever(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    named = {keyword.arg for keyword in call.keywords}
    return (
        name in ("subprocess.run", "subprocess.check_output", "subprocess.check_call", "os.fork", "os.wait")
        or (name.rpartition(".")[2] in ("join", "wait", "communicate") and not call.args and not named)
        or (name.startswith("DataLoader") and "num_workers" in named and "timeout" not in named)
    )
