"""One run of a verb: its result, the options it used, and what one must know to do it again; `fit.json`, say."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Generic, TypeVar

from infoform.common.json_values import NotThisRecord, from_json, to_json

R = TypeVar("R")
VERSION = 1  # of the form of these files; those without a version have the form of version 1


@dataclass(frozen=True)
class VerbRecord(Generic[R]):
    """What a verb of the command leaves as JSON.

    Args:
        verb: its name; "fit" for an update too.
        options: the options that were used, by their names on the command line.
        result: what the verb found, one dataclass a verb.
        notes: what the user was told besides.
        began: when, in ISO 8601 with the time zone, to the second.
        seconds: how long it took.
        peak_memory_bytes: of the process; None where the system does not tell.
        commit: of infoform, where it runs from a clone.
        versions: of the packages that decide the numbers.
        version: of the form of the file.

    Example:
        >>> record = VerbRecord("acquire", {"data": "pool.csv"}, {"chosen": [3]}, (), "2026-01-01T10:00:00+00:00", 2.0)
        >>> record.option("data"), record.ended.second
        ('pool.csv', 2)
    """

    verb: str
    options: Mapping[str, Any]
    result: R
    notes: tuple[str, ...]
    began: str
    seconds: float
    peak_memory_bytes: int | None = None
    commit: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    version: int = VERSION

    def option(self, name: str) -> str | None:
        """Return the value of an option as text; None where it was not given."""
        value = self.options.get(name)
        return None if value is None else str(value)

    @property
    def started(self) -> datetime:
        """Return when the verb began."""
        return datetime.fromisoformat(self.began)

    @property
    def ended(self) -> datetime:
        """Return when the verb ended."""
        return self.started + timedelta(seconds=self.seconds)

    def text(self) -> str:
        """Return the record as the text of a JSON file."""
        return json.dumps(to_json(self), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def read_json(path: Path) -> Any:
    """Return what a JSON file holds.

    Raises:
        ValueError: where the file cannot be read, in one sentence.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise ValueError(f"'{path}' cannot be read as JSON ({error}); run again the verb that wrote it.") from error


def read_record(path: Path, kind: type[R], command: str) -> VerbRecord[R]:
    """Read the record of a verb.

    Args:
        path: the file.
        kind: the dataclass of the verb's result.
        command: the command that writes the file ("infoform fit"), for the message of an error.

    Raises:
        ValueError: where the file is of a later version, is not complete, or holds something else, in one sentence.
    """
    return parse_record(read_json(path), kind, path=path, command=command)


def parse_record(content: Any, kind: type[R], *, path: Path, command: str) -> VerbRecord[R]:
    """Return the record that JSON holds; `path` and `command` are for the message of an error, as in `read_record`."""
    version = content.get("version", VERSION) if isinstance(content, dict) else VERSION
    if isinstance(version, int) and version > VERSION:
        raise ValueError(
            f"'{path}' was written by a later infoform (its version is {version}, and this one reads {VERSION} at "
            "most); update infoform."
        )
    try:
        record: VerbRecord[Any] = from_json(VerbRecord, content)
        datetime.fromisoformat(record.began)
        return replace(record, result=from_json(kind, record.result, "result"))
    except ValueError as error:
        reason = error if isinstance(error, NotThisRecord) else f"'began': {error}"
        raise ValueError(
            f"'{path}' was not written by '{command}' or is damaged ({reason}); run '{command}' again."
        ) from error


def is_record(content: Any) -> bool:
    """Tell whether JSON looks like the record of a verb, complete or not."""
    return isinstance(content, dict) and isinstance(content.get("verb"), str) and "result" in content
