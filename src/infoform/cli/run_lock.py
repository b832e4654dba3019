"""One command at a time changes a run; commands that only read it may work side by side.

The lock is the system's own, on the file `.lock`: it ends with its process, however that ends. Where it stays behind
all the same (on some network drives), removing the file is the way round it. Systems without such locks have none.
"""

import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import IO

from infoform.cli.mistakes import Mistake

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows
    fcntl = None  # type: ignore[assignment]

NAME = ".lock"


class RunLock:
    """The lock of one file, by whom it is held while this process has it.

    Args:
        path: The file of the lock.
        what: What is locked ("run 'runs/a'"), for the sentence of an error.
        verb: Of the command that wants it.
        alone: Whether no other command may have it meanwhile.

    Raises:
        Mistake: Another command has the lock.
        OSError: The file cannot be made; the folder is read-only, say.
    """

    def __init__(self, path: Path, what: str, verb: str, *, alone: bool) -> None:
        self._path = path
        self._file = self._open(what, alone=alone)
        about = {"process": os.getpid(), "computer": platform.node(), "command": f"infoform {verb}"}
        try:
            self._file.seek(0)
            self._file.truncate()
            self._file.write(json.dumps({**about, "since": datetime.now().astimezone().isoformat(timespec="seconds")}))
            self._file.flush()
        except OSError:  # the disk is full, say
            self.release()
            raise

    def release(self) -> None:
        """Give the lock back; the file goes with the last command that has it."""
        if self._file.closed:
            return
        with suppress(OSError):
            if fcntl is not None:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(self._file, self._path):
                self._path.unlink()
        with suppress(OSError):  # where its text had no room on the disk, closing says so once more
            self._file.close()

    def _open(self, what: str, *, alone: bool) -> IO[str]:
        while True:
            # never follows a link, and never empties what another command wrote there
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
            file = os.fdopen(handle, "r+", encoding="utf-8")
            if fcntl is None:  # pragma: no cover - Windows
                return file
            try:
                fcntl.flock(file, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = _holder(file.read())
                file.close()
                raise Mistake(
                    f"{what} is in use by another command ({holder}); wait until that has ended, or remove "
                    f"'{self._path}' if there is no such process any more."
                ) from None
            except OSError:
                return file  # a file system without locks
            if _is_at(file, self._path):
                return file
            file.close()  # its command has ended meanwhile, and taken the file with it


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Wait until no other command is changing files of the folder; for the moment of a change."""
    handle = os.open(folder, os.O_RDONLY) if fcntl is not None else None
    try:
        if handle is not None:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _is_at(file: IO[str], path: Path) -> bool:
    try:
        there = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    own = os.fstat(file.fileno())
    return (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino)


def _holder(text: str) -> str:
    try:
        about = json.loads(text)
        return f"{about['command']}, process {about['process']} on {about['computer']}, since {about['since']}"
    except (ValueError, KeyError, TypeError):
        return "which one is not known"
