"""Records of verbs are typed: what was written is read, files of earlier versions too, and nothing that is damaged."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import record_samples as samples
from infoform.records import COMMANDS, RESULTS, EvaluateResult, FitResult, read_record
from infoform.records.verb_record import VERSION, VerbRecord

ALL = [
    *((verb, samples.RESULTS[verb]) for verb in RESULTS),
    ("evaluate", samples.EVALUATE_NUMBERS),
    ("predict", samples.PREDICT_NUMBERS),
]


def _written(folder: Path, verb: str, **more: Any) -> Path:
    path = folder / f"{verb}.json"
    path.write_text(json.dumps(samples.record(verb, **more)))
    return path


@pytest.mark.parametrize(("verb", "result"), ALL)
def test_a_complete_file_without_a_version_is_read_and_written_again_with_the_same_keys(
    tmp_path: Path, verb: str, result: dict[str, Any]
) -> None:
    path = _written(tmp_path, verb, result=result)
    record = read_record(path, RESULTS[verb], COMMANDS[verb])
    assert isinstance(record.result, RESULTS[verb])
    assert record.version == VERSION
    again = json.loads(record.text())
    assert again.pop("version") == VERSION
    assert again == json.loads(path.read_text()) | {"peak_memory_bytes": None, "commit": None, "versions": {}}


@pytest.mark.parametrize(("verb", "result"), ALL)
def test_every_key_of_a_result_is_needed_unless_it_may_be_left_out(
    tmp_path: Path, verb: str, result: dict[str, Any]
) -> None:
    required = {each.name for each in fields(RESULTS[verb]) if each.name in result and not each.metadata}
    for key in required - {"weight_bytes", "by_rank", "structures", "coverage"}:  # earlier fits did not have these
        path = _written(tmp_path, verb, result={name: value for name, value in result.items() if name != key})
        with pytest.raises(ValueError, match=rf"{verb}.json' was not written by '.*' or is damaged .*result\.{key}'"):
            read_record(path, RESULTS[verb], COMMANDS[verb])


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"result": samples.FIT | {"rank": 3}}, "'result.rank' is unknown"),
        ({"result": samples.FIT | {"num_data": "many"}}, "'result.num_data' must be a number, got 'many'"),
        ({"result": samples.FIT | {"layers": {}}}, "'result.layers' must be a list, got an object"),
        ({"result": samples.FIT | {"layers": [3]}}, r"'result.layers\[0\]' must be an object, got 3"),
        (
            {"result": samples.FIT | {"layers": [samples.LAYER | {"shape": [3]}]}},
            r"'result.layers\[0\].shape' must be a list of 2, got a list",
        ),
        ({"result": samples.FIT | {"prior_precision": None}}, "'result.prior_precision' must be a number or an object"),
        ({"result": []}, "'result' must be an object, got a list"),
        ({"seconds": None}, "'seconds' must be a number, got null"),
        ({"seconds": True}, "'seconds' must be a number, got True"),
        ({"began": "yesterday"}, "'began': Invalid isoformat string: 'yesterday'"),
        ({"colour": "red"}, "'colour' is unknown"),
    ],
)
def test_a_damaged_file_is_told_in_one_sentence_that_names_file_rule_and_remedy(
    tmp_path: Path, more: dict[str, Any], said: str
) -> None:
    path = _written(tmp_path, "fit", **more)
    with pytest.raises(
        ValueError, match=rf"^'{path}' was not written by 'infoform fit' or is damaged \({said}"
    ) as told:
        read_record(path, FitResult, COMMANDS["fit"])
    assert str(told.value).endswith("); run 'infoform fit' again.")


def test_half_of_a_group_of_keys_is_damage(tmp_path: Path) -> None:
    result = {key: value for key, value in samples.EVALUATE.items() if key != "plain_reliability"}
    path = _written(tmp_path, "evaluate", result=result)
    with pytest.raises(ValueError, match=r"\('result.plain_reliability' is missing\); run 'infoform evaluate' again"):
        read_record(path, EvaluateResult, COMMANDS["evaluate"])


def test_a_file_of_a_later_version_is_refused(tmp_path: Path) -> None:
    path = _written(tmp_path, "fit", version=VERSION + 1)
    with pytest.raises(ValueError, match=r"was written by a later infoform .*; update infoform"):
        read_record(path, FitResult, COMMANDS["fit"])


def test_files_that_are_no_records(tmp_path: Path) -> None:
    path = tmp_path / "fit.json"
    for text, said in (("{", "cannot be read as JSON"), ("[]", "it must be an object, got a list")):
        path.write_text(text)
        with pytest.raises(ValueError, match=said):
            read_record(path, FitResult, COMMANDS["fit"])


def test_what_is_not_finite_is_written_as_null() -> None:
    record = VerbRecord("tune", {}, {"scores": (float("nan"), float("inf"), 1.0)}, (), "2026-01-01", 1.0)
    assert json.loads(record.text())["result"] == {"scores": [None, None, 1.0]}


def test_values_that_json_cannot_hold_are_refused() -> None:
    with pytest.raises(TypeError, match="got a set"):
        VerbRecord("tune", {}, {"scores": {1}}, (), "2026-01-01", 1.0).text()
