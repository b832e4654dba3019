"""One run of a verb: tables for people, one JSON for programs, and the options it used, all beside each other.

    with recorded(context, output, folder=run) as record:
        ...
        record.console.print(table)
        record.result = FitResult(...)

writes RUN/fit.json and RUN/fit.options.yaml; `--json PATH` writes the JSON elsewhere too, `--json -` prints it.
"""

import os
import platform
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from infoform.cli.config_file import used_options, write_config
from infoform.cli.mistakes import Mistake, say
from infoform.cli.options import Output
from infoform.common.durations import show_duration
from infoform.common.provenance import commit, peak_memory
from infoform.records.verb_record import VerbRecord
from infoform.version import __version__

PACKAGES = ("torch", "numpy", "safetensors", "scikit-learn", "torchmetrics")


@dataclass
class Record:
    """What a verb prints and writes."""

    verb: str
    console: Console
    progress: bool
    result: Any = None  # a dataclass of infoform.records
    notes: list[str] = field(default_factory=list)
    written: list[Path] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Tell the user something, and write it into the record too."""
        self.notes.append(text)
        say(f"note: {text}", style="yellow")


@contextmanager
def recorded(
    context: typer.Context, output: Output, *, folder: Path | None = None, name: str | None = None
) -> Iterator[Record]:
    """Run a verb; if it succeeds, write its JSON and its options into the folder, and to `--json`."""
    verb = context.info_name or "infoform"
    if output.json not in (None, "-"):
        _check_file(Path(output.json))
    made = _make(folder)
    quiet_stdout = output.json == "-"
    record = Record(verb, Console(stderr=quiet_stdout, highlight=False), not output.quiet)
    start, began = time.perf_counter(), datetime.now(timezone.utc)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.showwarning = lambda message, *_: record.note(" ".join(str(message).split()))
            yield record
    except BaseException:
        if made and folder is not None and not any(folder.iterdir()):
            folder.rmdir()  # nothing half-done is left behind
        raise
    seconds = time.perf_counter() - start
    text = VerbRecord(
        verb=verb,
        options=used_options(context),
        result=record.result,
        notes=tuple(record.notes),
        began=began.isoformat(timespec="seconds"),
        seconds=seconds,
        peak_memory_bytes=peak_memory(),
        commit=commit(),
        versions=versions(),
    ).text()
    name = name or verb
    if folder is not None:
        write_text(folder / f"{name}.json", text)
        write_config(context, folder / f"{name}.options.yaml")
        record.written += [folder / f"{name}.json"]
    if output.json == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
    elif output.json is not None:
        target = Path(output.json)
        write_text(target, text)
        if folder is None:
            write_config(context, target.with_suffix(".options.yaml"))
        record.written.append(target)
    if record.written:
        listed = ", ".join(str(path) for path in record.written)
        record.console.print(f"{show_duration(seconds, digits=1)}; wrote {listed}", soft_wrap=True, markup=False)


def write_text(path: Path, text: str) -> None:
    """Write a whole file or none."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise Mistake(f"'{path}' cannot be written: {error.strerror}; give another path.") from error


def versions() -> dict[str, str]:
    """Return the versions of the installed packages that the numbers depend on."""
    numbers = {"python": platform.python_version(), "infoform": __version__}
    for package in PACKAGES:
        try:
            numbers[package] = version(package)
        except PackageNotFoundError:
            continue
    return numbers


def _check_file(path: Path) -> None:
    """Raise if the file cannot be written; it is better to know before the work than after it."""
    if path.is_dir() or not path.resolve().parent.is_dir():
        reason = "it is a folder" if path.is_dir() else f"there is no folder '{path.parent}'"
        raise Mistake(f"'{path}' cannot be written: {reason}; give another path.")


def _make(folder: Path | None) -> bool:
    if folder is None or folder.is_dir():
        return False
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise Mistake(f"the folder '{folder}' cannot be made: {error.strerror}; give another one.") from error
    return True
