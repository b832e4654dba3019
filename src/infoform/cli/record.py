"""One run of a verb: tables for people, one JSON for programs, and the options it used, all beside each other.

    with recorded(context, output, folder=run) as record:
        laplace.save(record.stage(run / "posterior.safetensors"))
        record.console.print(table)
        record.result = FitResult(...)

writes RUN/fit.json and RUN/fit.options.yaml together with what was staged, all or nothing (run_change.py). `--json
PATH` writes the JSON elsewhere too, `--json -` prints it. While it runs, the run is locked (run_lock.py).
"""

import errno
import json
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
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
from infoform.cli.run_change import STAGED_PREFIX, RunChange, apply, finish, read_journal, sweep_staged
from infoform.cli.run_lock import NAME, RunLock, one_at_a_time
from infoform.common.durations import show_duration
from infoform.common.provenance import commit, peak_memory
from infoform.common.whole_files import NotWritten, sweep, write_text
from infoform.records.verb_record import VerbRecord
from infoform.version import __version__

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # what a disk without room answers
PACKAGES = ("torch", "numpy", "safetensors", "scikit-learn")


@dataclass
class Record:
    """What a verb prints and writes."""

    verb: str
    console: Console
    progress: bool
    result: Any = None  # a dataclass of infoform.records
    notes: list[str] = field(default_factory=list)
    written: list[Path] = field(default_factory=list)
    read_only: bool = False  # whether the run cannot be written to, and takes no record
    change: RunChange | None = None
    after: list[Callable[[], None]] = field(default_factory=list)  # what is to be done when all is written
    _moment: ExitStack = field(default_factory=ExitStack)
    _changing: bool = False

    def note(self, text: str) -> None:
        """Tell the user something, and write it into the record too."""
        self.notes.append(text)
        say(f"note: {text}", style="yellow")

    def stage(self, path: Path) -> Path:
        """Return where to write a file, which in the run gets its name together with the record; elsewhere at once."""
        if self.change is None or path.resolve().parent != self.change.folder.resolve():
            return path
        self.begin_change()
        return self.change.stage(path)

    def begin_change(self) -> None:
        """Let no other command change the run until this one is done with it."""
        if self.change is not None and not self._changing:
            self._moment.enter_context(one_at_a_time(self.change.folder))
            self._changing = True

    def end_change(self) -> None:
        """Let others change the run again."""
        self._moment.close()
        self._changing = False


@contextmanager
def recorded(
    context: typer.Context,
    output: Output,
    *,
    folder: Path | None = None,
    name: str | None = None,
    alone: bool = False,
    elsewhere: Path | None = None,
    after: Callable[[], None] | None = None,
) -> Iterator[Record]:
    """Run a verb; if it succeeds, write its JSON and its options into the folder, and to `--json`.

    Args:
        context: Of the command line.
        output: Options of every verb.
        folder: The run.
        name: Of the record, where it is not the verb's.
        alone: Whether the verb changes the posterior: then no other command may use the run meanwhile, and one that
            was killed when its work was done is finished and not done again.
        elsewhere: The file for what would be written into the run, where the run is read-only.
        after: What is to be done when everything is written, also for a command that was killed before it could.
    """
    verb = context.info_name or "infoform"
    name = name or verb
    if output.json not in (None, "-"):
        _check_file(Path(output.json))
    command = json.loads(json.dumps({"verb": name, "options": used_options(context)}))
    made = _make(folder)
    lock = _lock(folder, verb, alone=alone, elsewhere=elsewhere)
    quiet_stdout = output.json == "-"
    record = Record(verb, Console(stderr=quiet_stdout, highlight=False), not output.quiet)
    record.after += [] if after is None else [after]
    record.read_only = folder is not None and lock is None
    if record.read_only:
        record.note(f"'{folder}' is read-only, so it keeps no record of this command.")
    start, began = time.perf_counter(), datetime.now(timezone.utc)
    try:
        if folder is not None and lock is not None:
            _settle(folder, command, lock, record, output, ends=alone)
            record.change = RunChange(folder, command)
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.showwarning = lambda message, *_: record.note(" ".join(str(message).split()))
            yield record
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
        if folder is not None and record.change is not None:
            write_text(record.stage(folder / f"{name}.json"), text)
            write_config(context, record.stage(folder / f"{name}.options.yaml"), name=f"{name}.options.yaml")
            record.change.commit()
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
        _finish(folder, lock, record)
    except BaseException as error:
        committed = record.change is not None and record.change.committed
        if record.change is not None and not committed:
            record.change.abandon()
        if lock is not None:
            lock.release()
        record.end_change()
        if made and folder is not None and not any(folder.iterdir()):
            folder.rmdir()  # nothing half-done is left behind
        if isinstance(error, NotWritten) and folder is not None:
            said = STAGED_PREFIX.sub("", str(error))  # by the name that the file would have got
            if made or committed:
                raise Mistake(said) from error
            raise Mistake(f"{said.rstrip('.')}; the run '{folder}' is as it was.") from error
        raise
    if record.written:
        listed = ", ".join(str(path) for path in record.written)
        record.console.print(f"{show_duration(seconds, digits=1)}; wrote {listed}", soft_wrap=True, markup=False)


def settle(folder: Path) -> None:
    """Finish what a killed command has committed to, before the run is read; for verbs that do not lock it."""
    if folder.is_dir() and read_journal(folder) is not None:
        with one_at_a_time(folder):
            journal = read_journal(folder)
            if journal is not None:
                apply(folder, journal)
                finish(folder)


def _settle(folder: Path, command: Any, lock: RunLock, record: Record, output: Output, *, ends: bool) -> None:
    """Finish what a killed command has left, and end here if that was this same command with its work done."""
    with one_at_a_time(folder):
        sweep(folder)
        journal = read_journal(folder)
        if journal is not None:
            apply(folder, journal)
            if ends and journal.command == command:
                path = folder / f"{command['verb']}.json"
                text = path.read_text(encoding="utf-8")
                if output.json == "-":
                    sys.stdout.write(text)
                    sys.stdout.flush()
                elif output.json is not None:
                    write_text(output.json, text)
                _finish(folder, lock, record)
                record.console.print(f"{path} was complete but for the last step of its command, which is done now.")
                raise typer.Exit
            finish(folder)
        sweep_staged(folder)


def _finish(folder: Path | None, lock: RunLock | None, record: Record) -> None:
    """End a command whose files are all written; forgetting the change is the last thing, so that a kill is told."""
    for step in record.after:
        step()
    if lock is not None:
        lock.release()
    if folder is not None and lock is not None:
        finish(folder)
    record.end_change()


def _lock(folder: Path | None, verb: str, *, alone: bool, elsewhere: Path | None) -> RunLock | None:
    """Lock the run; None for a read-only one, whose results go elsewhere."""
    if folder is None:
        return None
    try:
        return RunLock(folder / NAME, f"the run '{folder}'", verb, alone=alone)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        if alone or elsewhere is None or elsewhere.resolve().parent == folder.resolve():
            options = {"predict": "--out FILE", "evaluate": "--json FILE"}
            remedies = ["free space there"] if error.errno in FULL else []
            remedies += [f"give {options[verb]} in another folder"] if verb in options else []
            remedy = ", or ".join(remedies) or "copy it to where you may write"
            raise Mistake(f"the run '{folder}' cannot be written to ({reason}); {remedy}.") from error
        if read_journal(folder) is not None:
            raise Mistake(
                f"the run '{folder}' is half changed by a command that was killed, and cannot be written to "
                f"({reason}); run any verb on it where you may write."
            ) from error
        return None


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
