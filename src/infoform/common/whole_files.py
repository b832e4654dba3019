"""Files that are there as a whole or not at all: written aside, flushed to the disk, then renamed.

Everything that infoform leaves under a name is written here, so that an error, a kill, a full disk or a loss of power
leaves the old file or the new one. The name of the file aside is new (nobody can have put a link there), and its
writer holds a lock on it, which the system takes back when the writer ends, however it ends. So the next start can
tell what a killed process has left behind (`sweep`) from what another one is writing.
"""

import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows
    fcntl = None  # type: ignore[assignment]

ASIDE = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{12}\.infoform-tmp")
OLD = 24 * 3600.0  # seconds after which a file aside was left behind, where the system has no locks
STAYS = "what was there before is as it was"


class NotWritten(OSError):
    """A file that could not be written; the message says which, why, and that the old one is as it was."""

    def __init__(self, message: str, errno: int | None = None) -> None:
        super().__init__(message)
        self.errno = errno


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file for writing, which gets its name when the block is done.

    Args:
        path: Where the file is to be; an older one is replaced, also where that is a link.

    Raises:
        FileNotFoundError: There is no such folder.
        NotWritten: The disk is full, the folder is read-only, and the like; the older file is as it was.

    Example:
        >>> import tempfile
        >>> target = Path(tempfile.mkdtemp()) / "numbers.txt"
        >>> with writing(target) as file:
        ...     written = file.write(b"1 2 3")
        >>> target.read_text()
        '1 2 3'
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder '{target.parent}' does not exist; create it before saving there.")
    if target.exists() and not target.is_file() and not target.is_dir():
        with target.open("wb") as device:  # a pipe or a device has no earlier content that could be lost
            yield device
        return
    sweep(target.parent, name=target.name)
    try:
        file = _new_file(target)
        aside = Path(file.name)
        try:
            with file:
                yield file
                file.flush()
                os.fsync(file.fileno())
                if fcntl is None:  # pragma: no cover - Windows renames no open file
                    file.close()
                os.replace(aside, target)  # still locked: a sweep must not take it for one that was left behind
            flush_folder(target.parent)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
    except NotWritten:
        raise
    except OSError as error:
        raise NotWritten(_sentence(target, error), error.errno) from error


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a whole file, or leave what is there."""
    with writing(path) as file:
        file.write(content)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a whole file of UTF-8 text, or leave what is there."""
    write_bytes(path, text.encode("utf-8"))


def sweep(folder: str | os.PathLike[str], *, name: str | None = None) -> list[Path]:
    """Remove what killed processes have left of files that they were writing.

    Args:
        folder: Where to look; not in folders inside.
        name: Of the file that was to be written; all names where it is not given.

    Returns:
        What was removed.
    """
    removed = []
    with suppress(OSError):  # a folder that cannot be read or changed has nothing that is in the way
        for entry in os.scandir(folder):
            match = ASIDE.fullmatch(entry.name)
            if match and (name is None or match["name"] == name) and entry.is_file(follow_symlinks=False):
                removed += [Path(entry.path)] if _removed_if_left(Path(entry.path)) else []
    return removed


def flush_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    with suppress(OSError):  # not every system can open a folder, or flush one
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _new_file(target: Path) -> BinaryIO:
    """Make a file beside the target under a name that nobody has, and lock it."""
    while True:
        aside = target.with_name(f".{target.name}.{secrets.token_hex(6)}.infoform-tmp")
        try:
            file = aside.open("xb")
        except FileExistsError:
            continue
        if fcntl is None:  # pragma: no cover - Windows
            return file
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # a sweep came between making and locking


def _removed_if_left(aside: Path) -> bool:
    with suppress(OSError), aside.open("rb") as file:
        if fcntl is None:  # pragma: no cover - Windows
            if time.time() - os.fstat(file.fileno()).st_mtime < OLD:
                return False
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        aside.unlink()
        return True
    return False


def _sentence(target: Path, error: OSError) -> str:
    reason = error.strerror or str(error)
    return f"'{target}' cannot be written: {reason}; {STAYS}, so free space or give another path."
