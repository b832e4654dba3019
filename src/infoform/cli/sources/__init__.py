"""Kinds of data on disk: to add one, write a file with `takes` and `read`, and a line in `DATA_KINDS`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from infoform.cli.mistakes import Mistake
from infoform.cli.options import DataOptions
from infoform.cli.sources import arrays, function, images, table
from infoform.cli.sources.base import Data, Reading


@dataclass(frozen=True)
class DataKind:
    """One kind of data: how to recognise it, and how to read it."""

    takes: Callable[[str], bool]
    read: Callable[[str, Reading], Data]
    looks: str  # what it is, for the message of an error
    options: frozenset[str] | None = None  # of DataOptions, that it heeds; None where it may heed all


DATA_KINDS: dict[str, DataKind] = {
    "images": DataKind(images.takes, images.read, "a folder of images", images.OPTIONS),
    "table": DataKind(table.takes, table.read, "a .csv, .tsv or .parquet table", table.OPTIONS),
    "arrays": DataKind(arrays.takes, arrays.read, "an .npz", arrays.OPTIONS),
    "function": DataKind(
        function.takes, function.read, "loader.py:function or package.module:function", function.OPTIONS
    ),
}


def check_options(given: DataOptions, specs: Sequence[str]) -> None:
    """Refuse an option of this command that none of its data heeds; those that a run remembers are not refused."""
    kinds = [kind for spec in specs for kind in DATA_KINDS.values() if kind.takes(spec)]
    if len(kinds) < len(specs):
        return  # `open_data` says what is wrong with these
    for name in given.given:
        if not any(kind.options is None or name in kind.options for kind in kinds):
            fits = " or ".join(kind.looks for kind in DATA_KINDS.values() if name in (kind.options or ()))
            flag = "--gray or --colour" if name == "gray" else f"--{name.replace('_', '-')}"
            raise Mistake(f"{flag} is for {fits}, got '{specs[0]}', which is {kinds[0].looks}; leave it out.")


def open_data(spec: str, reading: Reading) -> Data:
    """Read data of any kind."""
    for kind in DATA_KINDS.values():
        if kind.takes(spec):
            return kind.read(spec, reading)
    if not Path(spec).exists():
        raise Mistake(f"there is no file or folder '{spec}' to read data from; check the path.")
    looks = ", ".join(kind.looks for kind in DATA_KINDS.values())
    raise Mistake(f"data must be {looks}, got '{spec}'.")


__all__ = ["DATA_KINDS", "Data", "DataKind", "Reading", "check_options", "open_data"]
