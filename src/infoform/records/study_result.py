"""The JSON of an experiment's run: what each piece of work found, and all that it depends on."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from infoform.common.json_values import from_json
from infoform.common.whole_files import write_text

VERSION = 1  # of the form of the file; files without a version have the form of version 1


@dataclass(frozen=True)
class Result:
    """A run as far as it has come; floats are kept to seven digits."""

    experiment: str
    settings: Mapping[str, Any]
    seed: int
    total: int  # pieces of the whole run
    commit: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0  # of all pieces together
    peak_memory_bytes: int = 0
    pieces: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    version: int = VERSION

    @property
    def complete(self) -> bool:
        """Tell whether no piece is missing."""
        return len(self.pieces) == self.total

    def with_piece(self, key: str, outcome: Mapping[str, Any], *, seconds: float, peak_memory_bytes: int) -> "Result":
        """Return the same run with one more piece."""
        return replace(
            self,
            pieces={**self.pieces, key: _rounded(dict(outcome))},
            seconds=_rounded(self.seconds + seconds),
            peak_memory_bytes=max(self.peak_memory_bytes, peak_memory_bytes),
        )

    def save(self, path: Path) -> None:
        """Write the file, a line for each piece; an interruption leaves the old one or the new."""
        fields = asdict(self)
        lines = [f"  {json.dumps(key)}: {_compact(value)}" for key, value in fields.pop("pieces").items()]
        head = [f" {json.dumps(key)}: {_compact(value)}" for key, value in fields.items()]
        text = "{\n" + ",\n".join([*head, ' "pieces": {\n' + ",\n".join(lines) + "\n }"]) + "\n}\n"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)

    @classmethod
    def load(cls, path: Path) -> "Result":
        """Read a file that `save` wrote."""
        try:
            result = from_json(cls, json.loads(path.read_text()))
        except ValueError as error:
            raise ValueError(f"'{path}' must be the JSON of a run, and is not ({error}); move it away.") from error
        if result.version > VERSION:
            raise ValueError(
                f"'{path}' was written by a later infoform (its version is {result.version}, and this one reads "
                f"{VERSION} at most); update infoform."
            )
        return result


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value
