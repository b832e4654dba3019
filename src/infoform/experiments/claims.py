"""Several processes on one run: each claims a piece that nobody works on, and adds what it found to the one JSON.

A claim is a lock on a file, which the system takes back when its process ends, however it ends: nothing is to be
cleaned up after a crash. Where the system has no such locks (Windows), a run is for one process.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # pragma: no cover
    fcntl = None  # type: ignore[assignment]


class Claims:
    """The locks of one run, in a folder beside its JSON."""

    def __init__(self, result: Path) -> None:
        self._folder = result.with_suffix(".claims")

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Let no other process read or write the run's JSON meanwhile."""
        with self._file("run") as file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def claim(self, key: str) -> IO[str] | None:
        """Return what holds the claim on a piece until it is closed; None where another process has it."""
        file = self._file(f"piece {key}")
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        return file

    def remove(self) -> None:
        """Remove the folder of a run that is complete: nobody will claim anything."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _file(self, name: str) -> IO[str]:
        self._folder.mkdir(parents=True, exist_ok=True)
        return (self._folder / name.replace("/", "_")).open("w")
