"""`infoform compare` compares what the library compares, keeps its record, and refuses in a sentence."""

from collections.abc import Callable
from pathlib import Path

import pandas
import pytest
from trees import read
from typer.testing import Result

from infoform.records import COMMANDS, CompareResult, read_record

Call = Callable[..., Result]
Fail = Callable[..., str]
QUICK = ("--method", "temperature", "--method", "last layer", "--resamples", "100")


@pytest.fixture(autouse=True)
def one_timing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infoform.comparing.task.REPEATS", 1)


@pytest.fixture
def halves(fitted: Path) -> Path:
    frame = pandas.read_csv("trees.csv")
    frame[:20].to_csv("val.csv", index=False)
    frame[20:].to_csv("test.csv", index=False)
    (pandas.read_csv("unlabelled.csv") * 30).to_csv("far.csv", index=False)
    return fitted


def test_the_record_has_every_method_and_the_recommendation(halves: Path, succeed: Call) -> None:
    shown = succeed("compare", "run", "-d", "test.csv", "-v", "val.csv", "--unknown", "far=far.csv", *QUICK).stdout
    result = read_record(halves / "compare.json", CompareResult, COMMANDS["compare"]).result
    assert [one.name for one in result.methods] == ["plain", "temperature", "last layer"]
    assert (result.examples, result.validation_examples, result.unknown_examples) == (20, 20, {"far": 40})
    assert " ".join(result.recommendation.reason.split()[:5]) in " ".join(shown.split())
    assert f"{result.method('last layer').scores['nll']:.4f}" in shown
    assert result.method("last layer").cost.fit is not None
    assert not (halves / "compare.json.parts").exists()
    assert read(halves / "compare.json")["options"]["validation"] == "val.csv"


def test_validation_data_are_those_of_tune_where_none_are_named(halves: Path, succeed: Call) -> None:
    succeed("tune", "run", "-d", "val.csv", "--trials", "3")
    succeed("compare", "run", "-d", "test.csv", *QUICK)
    record = read_record(halves / "compare.json", CompareResult, COMMANDS["compare"])
    assert [one.name for one in record.result.methods] == ["plain", "temperature", "last layer"]
    assert record.result.validation_examples == 20
    assert any("tuned on the data of tune, 'val.csv'; --validation names others" in note for note in record.notes)


def test_the_report_has_a_section_with_the_plain_network_as_a_dashed_line(halves: Path, succeed: Call) -> None:
    from infoform.report.blocks import Chart, Sentences, Table
    from infoform.report.inputs import Run, read_inputs
    from infoform.report.sections import SECTIONS

    succeed("compare", "run", "-d", "test.csv", "-v", "val.csv", "--unknown", "far=far.csv", *QUICK)
    (run,) = read_inputs([halves])
    assert isinstance(run, Run)
    assert run.compare is not None
    found = SECTIONS["compare"](run)
    assert found is not None
    sentences, chart, scores, unknown = found.blocks
    assert isinstance(sentences, Sentences)
    assert sentences.items == [run.compare.recommendation.reason]
    assert isinstance(chart, Chart)
    line, dots = chart.figure["data"]
    (drawn,) = chart.figure["layout"]["shapes"]
    assert (line["line"]["dash"], drawn["line"]["dash"]) == ("dash", "dash")
    assert (*line["x"], drawn["x0"], drawn["x1"]) == 3 * (run.compare.method("plain").scores["nll"],)
    assert list(dots["x"]) == [one.scores["nll"] for one in run.compare.methods[:0:-1]]
    for place, one in enumerate(run.compare.methods[:0:-1]):
        gain = one.to_plain["nll"]
        assert dots["error_x"]["array"][place] == pytest.approx(max(0.0, gain.high - gain.mean))
        assert dots["error_x"]["arrayminus"][place] == pytest.approx(max(0.0, gain.mean - gain.low))
    assert isinstance(scores, Table)
    assert [row[0] for row in scores.rows] == ["plain", "temperature", "last layer"]
    assert isinstance(unknown, Table)
    assert "far" in unknown.title


def test_mistakes_are_told_in_a_sentence_and_leave_nothing(halves: Path, fail: Fail) -> None:
    assert "must be other data than" in fail("compare", "run", "-d", "val.csv", "-v", "val.csv", *QUICK)
    assert "--unknown must be NAME=DATA" in fail("compare", "run", "-d", "test.csv", "--unknown", "far=", *QUICK)
    assert "methods must be some of" in fail("compare", "run", "-d", "test.csv", "--method", "best")
    assert "has no column 'tree'" in fail("compare", "run", "-d", "unlabelled.csv", *QUICK)
    assert not list(halves.glob("compare.*"))
