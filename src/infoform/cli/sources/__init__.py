"""Kinds of data on disk: to add one, write a file with `takes` and `read`, and a line in `DATA_KINDS`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from infoform.cli.mistakes import Mistake
from infoform.cli.sources import arrays, function, images, table
from infoform.cli.sources.base import Data, Reading


@dataclass(frozen=True)
class DataKind:
    """One kind of data: how to recognise it, and how to read it."""

    takes: Callable[[str], bool]
    read: Callable[[str, Reading], Data]
    looks: str  # what it is, for the message of an error


DATA_KINDS: dict[str, DataKind] = {
    "images": DataKind(images.takes, images.read, "a folder of images"),
    "table": DataKind(table.takes, table.read, "a .csv, .tsv or .parquet table"),
    "arrays": DataKind(arrays.takes, arrays.read, "an .npz"),
    "function": DataKind(function.takes, function.read, "loader.py:function or package.module:function"),
}


def open_data(spec: str, reading: Reading) -> Data:
    """Read data of any kind."""
    for kind in DATA_KINDS.values():
        if kind.takes(spec):
            return kind.read(spec, reading)
    if not Path(spec).exists():
        raise Mistake(f"there is no file or folder '{spec}' to read data from; check the path.")
    looks = ", ".join(kind.looks for kind in DATA_KINDS.values())
    raise Mistake(f"data must be {looks}, got '{spec}'.")


__all__ = ["DATA_KINDS", "Data", "DataKind", "Reading", "open_data"]
