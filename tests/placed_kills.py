"""A command that is killed before one of its changes to the file system, and the folder that it leaves.

Python tells of every such change beforehand (an audit event). A child process counts those below a folder and kills
itself at the n-th, as `kill -9` would.

The children are forks of a process that has imported what the commands need and runs a single thread. A fork of the
tests' own process would inherit the locks of threads that it does not have (JAX, OpenMP), and wait for them for ever.
"""

import contextlib
import faulthandler
import hashlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bounded import end_of, exit_code, fork

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink", "shutil.rmtree")
FREE = ("began", "seconds", "peak_memory_bytes", "commit", "versions", "notes")  # of a record: no two runs share them
MEASURED = (
    "available_bytes",
    "seconds_per_example",
    "plain_seconds_per_example",
    "plain_seconds",
    "cost",
    "recommendation",
)
LONGEST = 200  # seconds that one command may take
GRACE = 20  # seconds more until the process that runs it must have answered


class CleanProcess:
    """A process of one thread that has imported the commands; each command runs in a fork of it.

    Each method returns how the command ended: its exit code, or the negative number of the signal that ended it.
    """

    def __init__(self, longest: int = LONGEST) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        self._longest = longest
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(longest)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True,
        )  # fmt: skip

    def __enter__(self) -> "CleanProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._end()

    def _end(self) -> None:
        """Kill the process and all its children."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(10)

    def warm_up(self, arguments: Sequence[str]) -> int:
        """Run a command in the process itself, which imports what the command needs."""
        return self._ask("warm_up", arguments)

    def run(self, arguments: Sequence[str]) -> int:
        """Run a command."""
        return self._ask("run", arguments)

    def count_changes(self, arguments: Sequence[str], below: Path) -> tuple[int, list[str]]:
        """Run a command; return how it ended, and its changes of the file system below a folder."""
        seen = below.parent / "changes.seen"
        code = self._ask("count", arguments, below=str(below), seen=str(seen))
        events = json.loads(seen.read_text())
        seen.unlink()
        return code, events

    def run_killed(self, arguments: Sequence[str], below: Path, at: int) -> int:
        """Run a command, which is killed before its change number `at` (from 0) below a folder."""
        return self._ask("kill", arguments, below=str(below), at=at)

    def run_for(self, arguments: Sequence[str], seconds: float) -> int:
        """Run a command, which is killed after so many seconds if it has not ended."""
        return self._ask("run_for", arguments, seconds=seconds)

    def _ask(self, how: str, arguments: Sequence[str], **more: Any) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        environment = {name: os.environ[name] for name in ("XDG_CONFIG_HOME", "COLUMNS") if name in os.environ}
        request = {"how": how, "arguments": [*arguments], "folder": os.getcwd(), "environment": environment, **more}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        answer, ends = b"", time.monotonic() + self._longest + GRACE
        while not answer.endswith(b"\n"):
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, ends - time.monotonic()))
            part = os.read(self._process.stdout.fileno(), 100) if ready else b""
            if not part:
                self._end()
                what = "did not answer" if not ready else "ended"
                raise TimeoutError(f"the process that runs commands {what}: {how} {' '.join(arguments)}.")
            answer += part
        code = int(answer)
        if code == -signal.SIGALRM and how != "run_for":
            raise TimeoutError(f"a command took more than {self._longest} seconds: {how} {' '.join(arguments)}.")
        return code


def answer_requests(longest: int) -> None:
    """Answer the requests of a CleanProcess, until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    silence = os.open(os.devnull, os.O_RDWR)
    os.dup2(silence, 1)
    sys.path.insert(0, str(Path(__file__).parent))
    for line in sys.stdin:
        request = json.loads(line)
        os.chdir(request["folder"])
        os.environ.update(request["environment"])
        if request["how"] == "warm_up":
            with _traced(longest):
                code = exit_code(lambda: command(request["arguments"]))  # noqa: B023
            sys.modules.pop("model", None)  # the user's file; another one may have the same name
        else:
            code = _in_child(lambda: _carry_out(request), longest)  # noqa: B023
        print(code, file=answers, flush=True)


def command(arguments: Sequence[str]) -> None:
    """Run the command line in this process."""
    from infoform.cli import app

    app([*arguments], standalone_mode=True)


def _carry_out(request: dict[str, Any]) -> None:
    """Run a command as it was asked for, in a child."""
    arguments, how = request["arguments"], request["how"]
    if how == "count":
        events: list[str] = []
        _watch(Path(request["below"]), events.append)
        try:
            command(arguments)
        finally:
            Path(request["seen"]).write_text(json.dumps(events))
        return
    if how == "kill":
        left = [request["at"]]

        def kill(event: str) -> None:
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1

        _watch(Path(request["below"]), kill)
    elif how == "run_for":
        signal.setitimer(signal.ITIMER_REAL, max(1e-4, request["seconds"]))  # whose signal ends it as a kill does
    command(arguments)


def _in_child(work: Callable[[], None], longest: int) -> int:
    """Run something in a fork of this process; return how it ended."""

    def silently() -> None:
        with _traced(longest):
            os.dup2(1, 2)
            work()

    return end_of(fork(silently, seconds=longest))


@contextlib.contextmanager
def _traced(longest: int) -> Iterator[None]:
    """Tell where the process stands if it takes too long, just before it is killed."""
    with os.fdopen(os.dup(2), "w") as errors:
        faulthandler.dump_traceback_later(longest - 0.5, file=errors)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()


def _watch(below: Path, tell: Callable[[str], None]) -> None:
    root = str(below.resolve()) + os.sep

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if not isinstance(flags, int) or not flags & WRITES:
                return
        elif event in CHANGES:
            path = arguments[0]
        else:
            return
        if isinstance(path, str | os.PathLike) and os.path.abspath(path).startswith(root):
            told = [os.path.basename(one) for one in arguments[:2] if isinstance(one, str | os.PathLike)]
            tell(f"{event} {' to '.join(told)}")

    sys.addaudithook(hook)


def contents(folder: Path) -> dict[str, Any]:
    """Return what is in a folder, without what differs from one run of a command to the next."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_dir() or "__pycache__" in path.parts:
            continue
        name = str(path.relative_to(folder))
        data = path.read_bytes()
        if path.suffix == ".json":
            content = json.loads(data)
            if isinstance(content.get("result"), dict):
                content["result"] = _without_measured(content["result"])
            found[name] = {key: value for key, value in content.items() if key not in FREE}
        elif path.suffix == ".html":
            found[name] = hashlib.sha256(re.sub(rb"\d", b"", data)).hexdigest()
        else:
            found[name] = hashlib.sha256(data).hexdigest()
    return found


def _without_measured(value: Any) -> Any:
    """Return a result without times, what is said of times, and the memory that was free just then."""
    if isinstance(value, list):
        return [_without_measured(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {key: _without_measured(one) for key, one in value.items() if key not in MEASURED}


if __name__ == "__main__":
    answer_requests(int(sys.argv[1]))
