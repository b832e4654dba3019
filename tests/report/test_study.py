"""The result of an experiment becomes a tab with the experiment's own page."""

import base64
from pathlib import Path

import pytest
import tiny_experiment

from infoform.records.study_result import Result
from infoform.report import make_report

find_experiment = {"tiny": tiny_experiment.EXPERIMENT}.get


@pytest.fixture
def file(tmp_path: Path) -> Path:
    result = Result("tiny", {"width": 3}, 0, 1, commit="abc", pieces={"one": {"value": 0.125}})
    result.save(tmp_path / "tiny.json")
    return tmp_path / "tiny.json"


def test_its_page_is_set_with_its_pictures_inside(file: Path) -> None:
    page = make_report([file], find_experiment=find_experiment)
    assert "<h3>Title</h3>" in page
    assert "0.125" in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script>alert(1)" not in page
    assert "A tiny &lt;experiment&gt;." in page
    assert f'src="data:image/png;base64,{base64.b64encode(tiny_experiment.PNG).decode()}"' in page
    assert "other.md" not in page
    assert "another page" in page


def test_an_unfinished_one_says_how_far_it_is(file: Path) -> None:
    Result("tiny", {}, 0, 4, pieces={"one": {"value": 1.0}}).save(file)
    assert "1 of 4\u00a0pieces are done" in make_report([file], find_experiment=find_experiment)


def test_an_experiment_that_is_not_here(file: Path) -> None:
    with pytest.raises(ValueError, match="'tiny', which this infoform does not have"):
        make_report([file])


def test_a_picture_that_is_not_drawn(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiny_experiment.Tiny, "charts", lambda *_: None)
    with pytest.raises(ValueError, match=r"shows '../images/tiny.png', which its charts do not draw"):
        make_report([file], find_experiment=find_experiment)
