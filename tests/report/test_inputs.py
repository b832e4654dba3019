"""What a report is made from is read, named, and refused in one sentence where it is something else."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import record_samples as samples
from infoform.common.json_values import from_json, to_json
from infoform.records import FitResult
from infoform.report.inputs import Run, Study, read_inputs
from record_samples import record as _record


def _write(folder: Path, **records: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for verb, record in records.items():
        (folder / f"{verb}.json").write_text(json.dumps(record))
    return folder


def test_a_folder_of_a_run_has_its_verbs(tmp_path: Path) -> None:
    (run,) = read_inputs([_write(tmp_path / "a", fit=_record("fit"), evaluate=_record("evaluate"))])
    assert isinstance(run, Run)
    assert run.name == "a"
    assert set(run.records) == {"fit", "evaluate"}
    assert run.tune is None
    assert run.task == "classification"


def test_an_update_overrules_the_first_fit(tmp_path: Path) -> None:
    first, later = (_record("fit", result=samples.FIT | {"num_data": count}) for count in (10, 20))
    (run,) = read_inputs([_write(tmp_path / "a", fit=first, update=later)])
    assert isinstance(run, Run)
    assert run.fit == replace(from_json(FitResult, samples.FIT), num_data=20)


def test_ranks_applied_by_a_plan_overrule_those_of_the_fit(tmp_path: Path) -> None:
    folder = _write(tmp_path / "a", fit=_record("fit"), plan=_record("plan"))
    (told,) = read_inputs([folder])
    assert isinstance(told, Run)
    assert told.fit is not None
    assert told.fit.total_bytes == 900  # it was only told
    _write(folder, plan=_record("plan", options={"apply": True}))
    (run,) = read_inputs([folder])
    assert isinstance(run, Run)
    assert run.fit is not None
    assert to_json(run.fit.layers) == [samples.PLAN["layers"][0] | {"spectrum": samples.SPECTRUM}]
    assert (run.fit.total_bytes, run.fit.kept, run.fit.settings.rank) == (300, 0.5, "by layer")
    assert [size.bytes for size in run.fit.structures] == [5, 300]


def test_results_older_than_the_posterior_are_known(tmp_path: Path) -> None:
    late = _record("tune", "2026-01-01T12:00:00+00:00")
    folder = _write(tmp_path / "a", fit=_record("fit"), tune=late, evaluate=_record("evaluate"))
    (run,) = read_inputs([folder])
    assert isinstance(run, Run)
    assert run.outdated == ["evaluate"]
    _write(folder, evaluate=_record("evaluate", "2026-01-01T12:00:05+00:00"))
    (run,) = read_inputs([folder])
    assert isinstance(run, Run)
    assert run.outdated == []


def test_runs_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    folders = [_write(tmp_path / parent / "a", fit=_record("fit")) for parent in ("x", "y")]
    assert [run.name for run in read_inputs([*folders, folders[1]])] == ["x/a", "y/a", "y/a (2)"]


def test_single_files_and_folders_of_results(tmp_path: Path) -> None:
    result = {"experiment": "toy", "settings": {}, "seed": 0, "total": 1, "pieces": {}}
    (tmp_path / "toy.json").write_text(json.dumps(result))
    (tmp_path / "other.json").write_text("{}")
    (study,) = read_inputs([tmp_path])
    assert isinstance(study, Study)
    assert study.name == "toy"
    (tmp_path / "scores.json").write_text(json.dumps(_record("evaluate")))
    (run,) = read_inputs([tmp_path / "scores.json"])
    assert isinstance(run, Run)
    assert set(run.records) == {"evaluate"}
    assert run.task == "classification"
    (tmp_path / "scores.json").write_text(json.dumps(_record("evaluate", result=samples.EVALUATE_NUMBERS)))
    (run,) = read_inputs([tmp_path / "scores.json"])
    assert isinstance(run, Run)
    assert run.task == "regression"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "there is no folder or file"),
        ("{", "cannot be read as JSON"),
        ("[]", "holds neither the result of a verb nor of an experiment"),
        ('{"verb": "bench"}', "holds neither the result of a verb nor of an experiment"),
    ],
)
def test_files_that_are_something_else(tmp_path: Path, content: str | None, said: str) -> None:
    file = tmp_path / "a.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ValueError, match=said):
        read_inputs([file])


def test_folders_that_hold_nothing_or_something_damaged(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds nothing to report"):
        read_inputs([tmp_path])
    (tmp_path / "fit.json").write_text("{}")
    with pytest.raises(ValueError, match="was not written by 'infoform fit' or is damaged"):
        read_inputs([tmp_path])
    shutil.rmtree(tmp_path)
    with pytest.raises(ValueError, match="needs at least one RUN"):
        read_inputs([])
