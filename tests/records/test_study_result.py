"""The JSON of an experiment is typed too."""

import json
from pathlib import Path

import pytest

from infoform.records.study_result import VERSION, Result

CONTENT = {"experiment": "toy", "settings": {"epochs": 3}, "seed": 0, "total": 1, "pieces": {"a": {"nll": 0.5}}}


def test_a_file_without_a_version_is_read(tmp_path: Path) -> None:
    path = tmp_path / "toy.json"
    path.write_text(json.dumps(CONTENT))
    result = Result.load(path)
    assert result == Result("toy", {"epochs": 3}, 0, 1, pieces={"a": {"nll": 0.5}})
    result.save(path)
    assert json.loads(path.read_text())["version"] == VERSION
    assert Result.load(path) == result


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seed": None}, r"must be the JSON of a run, and is not \('seed' must be a whole number, got null\)"),
        ({"colour": 3}, r"must be the JSON of a run, and is not \('colour' is unknown\); move it away"),
        ({"version": VERSION + 1}, "was written by a later infoform"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, change: dict[str, object], said: str) -> None:
    path = tmp_path / "toy.json"
    path.write_text(json.dumps(CONTENT | change))
    with pytest.raises(ValueError, match=said):
        Result.load(path)
