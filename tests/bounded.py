"""Other processes and threads of the tests, each with an end: a test that waits for ever stops all of CI.

What waits in some other way is ended with a stack trace by `faulthandler_timeout` of pyproject.toml.
"""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import Any

SECONDS = 540  # a busy machine takes ten times as long; less than faulthandler_timeout
FORK_SECONDS = 120


def run(
    command: Sequence[str], *, seconds: float = SECONDS, check: bool = False, **options: Any
) -> "subprocess.CompletedProcess[str]":
    """Run a command as `subprocess.run` does, with its text captured; kill it and all its children when time is up."""
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, start_new_session=True, **pipes, **options) as process:
        try:
            said, errors = process.communicate(timeout=seconds)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                said, errors = process.communicate(timeout=10)
                raise AssertionError(f"{command} took more than {seconds} s\n{said}\n{errors}") from None
            raise
    if check:
        assert process.returncode == 0, f"{said}\n{errors}"
    return subprocess.CompletedProcess(command, process.returncode, said, errors)


def fork(work: Callable[[], object], *, seconds: int = FORK_SECONDS) -> int:
    """Start a child that does something and ends; it is killed when its time is up. Return its number."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # which ends the process, whatever it waits for
        signal.alarm(seconds)
        os._exit(exit_code(work))
    return child


def end_of(child: int) -> int:
    """Wait for a child of `fork`; return its exit code, or the negative number of the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def exit_code(work: Callable[[], object]) -> int:
    """Do something; return the exit code of a process that does only that."""
    try:
        work()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        import traceback

        traceback.print_exc()
        return 1
    return 0


def join(*threads: threading.Thread, seconds: float = FORK_SECONDS) -> None:
    """Wait for threads; fail when their time is up. Make them daemons, so that the tests can end without them."""
    for thread in threads:
        thread.join(seconds)
        assert not thread.is_alive(), f"{thread.name} has not ended after {seconds} s"
