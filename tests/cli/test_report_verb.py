"""`infoform report` writes one page, and refuses what it cannot use in one sentence."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from infoform.report import MARK

Call = Callable[..., Result]
Fail = Callable[..., str]


def test_a_page_of_one_run_lies_in_it(fitted: Path, succeed: Call) -> None:
    succeed("evaluate", "run", "--data", "trees.csv", "--quiet")
    printed = succeed("report", "run", "--json", "-")
    page = Path("run/report.html").read_text()
    assert json.loads(printed.stdout)["result"] == {
        "page": str((fitted / "report.html").resolve()),
        "bytes": len(page.encode()),
        "runs": ["run"],
    }
    assert MARK in page
    assert "confidence or more" in page
    succeed("report", "run", "--title", "Trees & more")  # replaces its own page
    assert "<title>Trees &amp; more</title>" in Path("run/report.html").read_text()
    succeed("report", "run", "run")  # several: here
    assert Path("report.html").exists()
    succeed("fit", "run", "--config", "run/fit.options.yaml", "--force", "--quiet")
    assert not Path("run/report.html").exists()  # it was of another posterior


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "there is no folder or file 'nowhere' to report on"),
        (["empty"], "'empty' holds nothing to report"),
        (["run", "--out", "page.pdf"], "--out must end with .html, got 'page.pdf'"),
        (["run", "--out", "missing/page.html"], "there is no folder 'missing' for --out"),
        (["run", "--out", "mine.html"], "'mine.html' is there and no report of infoform's"),
        (["run", "--out", "folder.html"], "'folder.html' is a folder"),
        (["trees.csv"], "'trees.csv' cannot be read as JSON"),
    ],
)
def test_mistakes(fitted: Path, fail: Fail, arguments: list[str], said: str) -> None:
    Path("empty").mkdir()
    Path("folder.html").mkdir()
    Path("mine.html").write_text("<p>mine</p>")
    assert said in fail("report", *arguments)
    assert Path("mine.html").read_text() == "<p>mine</p>"


def test_a_missing_package_is_named(fitted: Path, fail: Fail, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    assert "pip install 'infoform[report]'" in fail("report", "run")


def test_a_command_line_without_runs(home: Path, fail: Fail) -> None:
    assert "RUN" in fail("report", code=2)
