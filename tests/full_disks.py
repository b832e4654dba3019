"""A disk that is full and a user without rights, made by the system itself."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """Have the system refuse to write more than so many bytes to a file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Let nobody write into a folder, root neither."""
    modes = {path: path.stat().st_mode for path in (folder, *folder.parents)}
    for parent in (path for path in folder.parents if path.stat().st_uid == os.geteuid() and path != Path("/")):
        parent.chmod(modes[parent] | 0o055)  # pytest's folders are open to their owner alone
    folder.chmod(0o555)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        for path, mode in modes.items():
            if path.stat().st_mode != mode:
                path.chmod(mode)
