"""The fixtures of folder.py, where pytest finds them, and a process for commands that are killed."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from folder import call, fail, fitted, home, succeed
from killed_verbs import make_folder, warm_up

from placed_kills import CleanProcess

__all__ = ["call", "fail", "fitted", "home", "succeed"]


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CleanProcess]:
    """Start a process of one thread that has imported all that the commands need."""
    here = Path.cwd()
    folder = tmp_path_factory.mktemp("warm up")
    with CleanProcess() as process:
        try:
            os.chdir(folder)
            make_folder()
            warm_up(process)
        finally:
            os.chdir(here)
        yield process
