"""The JSON of a benchmark: rows, one a measurement, and the runs that they come from."""

import json
from pathlib import Path
from typing import Any

from ..common import environment, rounded, write_json

DIGITS = 4  # of a number, which is more than a clock can tell
KEY = ("stage", "network", "method", "size")
Row = dict[str, Any]


class Results:
    """Rows by stage, network, method and size; a new one replaces an old one, and the file is kept current."""

    def __init__(self, path: Path) -> None:
        self.path = path
        saved = json.loads(path.read_text()) if path.exists() else {"runs": [], "rows": []}
        self.runs: list[dict[str, Any]] = saved["runs"]
        self._rows: dict[tuple[Any, ...], Row] = {_key(row): row for row in saved["rows"]}

    @property
    def rows(self) -> list[Row]:
        return list(self._rows.values())

    def begin(self, settings: dict[str, Any]) -> None:
        """Start a run: what is added from now on belongs to it."""
        self.runs.append({"run": 1 + max((one["run"] for one in self.runs), default=0), "settings": settings})
        self.runs[-1]["environment"] = environment()

    def add(self, stage: str, network: str, method: str, size: int | None, found: dict[str, Any]) -> None:
        row = {"stage": stage, "network": network, "method": method, "size": size, "run": self.runs[-1]["run"]} | found
        self._rows[_key(row)] = row
        self.save()

    def has(self, stage: str, network: str, method: str, size: int | None = None) -> bool:
        """Tell whether there is a finished measurement; one that failed is finished too."""
        row = self._rows.get((stage, network, method, size))
        return row is not None and "unfinished" not in row and "skipped" not in row

    def save(self) -> None:
        """Write the file, through another one, so that an interruption leaves the old or the new."""
        used = {row["run"] for row in self._rows.values()}
        self.runs = [one for one in self.runs if one["run"] in used or one is self.runs[-1]]
        write_json(self.path, {"runs": self.runs, "rows": rounded(self.rows, DIGITS)})


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in KEY)
