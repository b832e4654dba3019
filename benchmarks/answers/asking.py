"""The asking side of a worker: one process for each version or library, asked in turns."""

import json
import os
import select
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT

MEMORY = 12  # gigabytes that a peer may have


@dataclass(frozen=True)
class Side:
    """One that is asked: a checkout of infoform, or laplace-torch in the peers' environment."""

    name: str  # "before", "now" or "laplace-torch"
    python: Path
    tree: Path = ROOT  # whose src/ is imported
    library: str = "infoform"

    def command(self, case: str, *, quick: bool, cifar: Path | None) -> list[str]:
        options = ["--quick"] if quick else []
        options += [] if cifar is None else ["--cifar", str(cifar)]
        options += ["--memory", str(MEMORY)] if self.library != "infoform" else []
        return [str(self.python), "-m", "benchmarks.answers.worker", self.library, case, *options]


class Worker:
    """A running process; one that dies or takes too long is ended, and begun anew for the next question.

    Args:
        side: Who is asked.
        command: How the process is started.
        limit: Seconds that an answer may take.
    """

    def __init__(self, side: Side, command: list[str], *, limit: float) -> None:
        self.side, self._command, self._limit = side, command, limit
        self._process: subprocess.Popen[str] | None = None

    def ask(self, **request: Any) -> dict[str, Any]:
        """Return the answer, which has the reason under "failed" where there is none."""
        if self._process is None:
            self._process = self._start()
            told = self._answer()
            if "failed" in told:
                return told
        assert self._process.stdin is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return self._answer()

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _start(self) -> subprocess.Popen[str]:
        paths = {"PYTHONPATH": f"{self.side.tree / 'src'}{os.pathsep}{ROOT}", "OMP_WAIT_POLICY": "PASSIVE"}
        pipe = subprocess.PIPE
        return subprocess.Popen(
            self._command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT, env={**os.environ, **paths}
        )

    def _answer(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], self._limit)
        line = self._process.stdout.readline() if ready else ""
        if not line:
            self.close()
            return {"failed": "the process was ended" if ready else f"more than {self._limit:.0f} s"}
        answer: dict[str, Any] = json.loads(line)
        return answer
