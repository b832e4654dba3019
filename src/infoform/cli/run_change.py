"""Files of a run that change together: all of them, or none.

    staged      new files lie in the run under other names
    committed   `.commit.json` says which files they become, and which of the old ones go: the one point of commitment
    applied     they have their names, and the old ones are gone
    finished    `.commit.json` is removed

A command that was killed before the commitment has changed nothing: the next start sweeps up (`sweep_staged`). A
command that was killed after it has done its work: the next start, of any verb, does the rest (`recover`). Each step
of that can be done twice.
"""

import json
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infoform.common.json_values import from_json, to_json
from infoform.common.whole_files import flush_folder, write_text

JOURNAL = ".commit.json"
STAGED_PREFIX = re.compile(r"\.staged-[0-9a-f]{12}\.")
STAGED = re.compile(STAGED_PREFIX.pattern + r".+")
EARLIER = "earlier"  # folder of the run for results of posteriors that it had before


@dataclass(frozen=True)
class Journal:
    """What a command changes, as `.commit.json` keeps it; all names are of files directly in the run."""

    command: Mapping[str, Any]
    becomes: Mapping[str, str]  # final name by staged name
    removed: list[str]
    kept: Mapping[str, str]  # place under `earlier/` ("2/tune.json") by name

    def check(self) -> None:
        """Raise a ValueError unless every name stays inside the run, also in a run from elsewhere."""
        plain = [*self.becomes, *self.becomes.values(), *self.removed, *self.kept]
        good = all(_is_plain(name) for name in plain) and all(STAGED.fullmatch(name) for name in self.becomes)
        places = (place.split("/") for place in self.kept.values())
        if not good or not all(len(parts) == 2 and parts[0].isdigit() and _is_plain(parts[1]) for parts in places):
            raise ValueError("a name in it is none of a file in the run")


@dataclass
class RunChange:
    """What one command is about to change in a run."""

    folder: Path
    command: Mapping[str, Any]
    committed: bool = False
    _token: str = field(default_factory=lambda: secrets.token_hex(6))
    _becomes: dict[str, str] = field(default_factory=dict)
    _removed: list[str] = field(default_factory=list)
    _kept: dict[str, str] = field(default_factory=dict)

    def stage(self, path: Path) -> Path:
        """Return where to write a file that gets its name with the commitment."""
        staged = f".staged-{self._token}.{path.name}"
        self._becomes[staged] = path.name
        return self.folder / staged

    def remove(self, path: Path) -> None:
        """Have a file or folder of the run removed."""
        self._removed.append(path.name)

    def keep(self, path: Path, number: int) -> None:
        """Have a file of the run moved to the results of earlier posteriors."""
        self._kept[path.name] = f"{number}/{path.name}"

    def commit(self) -> None:
        """Make the change; `finish` must follow."""
        removed = [name for name in self._removed if name not in self._becomes.values()]
        journal = Journal(self.command, self._becomes, removed, self._kept)
        write_text(self.folder / JOURNAL, json.dumps(to_json(journal)))
        self.committed = True
        apply(self.folder, journal)

    def abandon(self) -> None:
        """Remove what was staged."""
        for staged in self._becomes:
            (self.folder / staged).unlink(missing_ok=True)


def read_journal(folder: Path) -> Journal | None:
    """Return what a killed command has committed to and not finished; None where there is nothing.

    Raises:
        ValueError: The file is not infoform's.
    """
    path = folder / JOURNAL
    try:
        journal = from_json(Journal, json.loads(path.read_text(encoding="utf-8")))
        journal.check()
    except FileNotFoundError:
        return None
    except (ValueError, OSError, RecursionError) as error:
        raise ValueError(f"'{path}' is damaged ({error}); remove it, and make the run again by --force.") from error
    return journal


def apply(folder: Path, journal: Journal) -> None:
    """Give the staged files their names, and have the old ones go; what was done before is left."""
    for name, place in journal.kept.items():
        target = folder / EARLIER / place
        if (folder / name).exists() and not target.exists():  # else it was moved before, and a new one has its name
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(folder / name, target)
    for name in journal.removed:
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    for staged, name in journal.becomes.items():
        if (folder / staged).exists():
            os.replace(folder / staged, folder / name)
    flush_folder(folder)


def finish(folder: Path) -> None:
    """Forget a change that was applied."""
    (folder / JOURNAL).unlink(missing_ok=True)


def sweep_staged(folder: Path) -> None:
    """Remove files that a killed command had staged and not committed to; only while nobody else may stage any."""
    for path in folder.iterdir():
        if STAGED.fullmatch(path.name):
            path.unlink()


def _is_plain(name: str) -> bool:
    return name not in ("", ".", "..") and "/" not in name and "\\" not in name and "\0" not in name
