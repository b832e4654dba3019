"""The result of uci-landscape becomes planes that act, with the values of the result."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_page import _specs, opened

from infoform.cli.catalogue import find_experiment
from infoform.records.study_result import Result
from infoform.report import make_report

METHODS = ("diag", "inf 5%", "ours")
POINTS = 3


def _value(number: int, at: int, other: int) -> float:
    """Return some value of a method, larger for later ones, whose best is at N = 10^1, τ = 10^number."""
    return number - 0.25 * abs(at - 2) - 0.125 * abs(other - number)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a result of two sets and three methods, on grids of 3 × 3."""
    folder = tmp_path_factory.mktemp("planes")
    pieces = {
        f"{name}/{method}": {
            "log_likelihood": [[_value(number, at, other) for other in range(POINTS)] for at in range(POINTS)]
        }
        for name in ("boston", "yacht")
        for number, method in enumerate(METHODS)
    }
    settings = {
        "sets": ["boston", "yacht"], "points": POINTS, "data_powers": [-1, 1], "precision_powers": [0, 2],
        "samples": 100, "split": 0,
    }  # fmt: skip
    Result("uci-landscape", settings, 0, len(pieces), pieces=pieces).save(folder / "uci-landscape.json")
    (folder / "report.html").write_text(
        make_report([folder / "uci-landscape.json"], find_experiment=find_experiment), encoding="utf-8"
    )
    return folder / "report.html"


@pytest.fixture(scope="module")
def page(browser: Any, file: Path) -> Iterator[Any]:
    with opened(browser, file.as_uri()) as shown:
        yield shown


def test_every_set_has_its_plane_and_its_cuts(page: Any) -> None:
    headings = page.locator("h2, h3").all_inner_texts()
    assert {"The plane of (N, τ): boston", "The plane of (N, τ): yacht"} <= set(headings)
    assert page.locator(".chart .main-svg").count() >= 4
    assert page.locator(".hm image").count() == 2


def test_the_slider_of_a_plane_goes_through_the_methods(page: Any) -> None:
    name, spec = next((name, spec) for name, spec in _specs(page).items() if spec["data"][0]["type"] == "heatmap")
    assert [step[0] for step in spec["steps"]] == list(METHODS)
    assert spec["data"][0]["x"] == pytest.approx([0.1, 1, 10])
    assert spec["data"][0]["y"] == pytest.approx([1, 10, 100])
    for number, method in enumerate(METHODS):
        _move(page, name, number)
        drawn = page.evaluate(f"document.getElementById('{name}').data")
        for at in range(POINTS):
            for other in range(POINTS):
                assert drawn[0]["z"][other][at] == _value(number, at, other)
        assert (drawn[1]["x"], drawn[1]["y"]) == ([pytest.approx(10)], [pytest.approx(10**number)])
        told = page.locator(f"#{name}-told").inner_text()
        assert told == f"{method}: at best {number:.3f}, at N = 10 times the examples and τ = {10**number}."


def test_the_slider_of_the_cuts_goes_through_the_prior_precisions(page: Any) -> None:
    name, spec = next((name, spec) for name, spec in _specs(page).items() if len(spec["data"]) == len(METHODS))
    assert [trace["name"] for trace in spec["data"]] == list(METHODS)
    for other in range(POINTS):
        _move(page, name, other)
        drawn = page.evaluate(f"document.getElementById('{name}').data")
        for number in range(len(METHODS)):
            assert drawn[number]["y"] == [_value(number, at, other) for at in range(POINTS)]
    assert page.locator(f"#{name}-told").inner_text() == "At τ = 100 the best is ours, with 2.000."


def test_an_unfinished_result_has_no_planes(tmp_path: Path) -> None:
    content = {"sets": ["boston"], "points": 3}
    Result("uci-landscape", content, 0, 7, pieces={}).save(tmp_path / "uci-landscape.json")
    text = make_report([tmp_path / "uci-landscape.json"], find_experiment=find_experiment)
    assert "are done; run" in text
    assert "The plane of" not in text


def _move(page: Any, name: str, at: int) -> None:
    page.locator(f"input[data-chart='{name}']").evaluate(
        "(one, at) => { one.value = at; one.dispatchEvent(new Event('input', {bubbles: true})); }", at
    )
