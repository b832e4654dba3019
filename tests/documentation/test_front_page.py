"""The front page shows what the committed results say: its table, in both places, and its picture."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
from benchmarks.front_page import BEGIN, END, PAGES, PICTURE, measured, picture

from infoform.demo.front import PANEL, PANELS, WIDTH

REMEDY = "results have changed: run python -m benchmarks.front_page"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_page_has_the_table_of_the_results(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.partition(BEGIN)[2].partition(END)[0].strip() == measured(), REMEDY
    assert "images/front.svg" in text


def test_the_picture_is_the_one_of_the_results() -> None:
    assert PICTURE.read_text(encoding="utf-8") == picture(), REMEDY


def test_the_bars_of_the_picture_lie_inside_it_and_each_histogram_adds_up() -> None:
    root = ElementTree.fromstring(picture())
    heights: dict[str, float] = {"known bars": 0.0, "unknown bars": 0.0}
    for bar in root.iter("{http://www.w3.org/2000/svg}rect"):
        if (name := bar.get("class")) in heights:
            heights[str(name)] += float(bar.get("height", "nan"))
            assert 0 <= float(bar.get("x", "nan")) <= WIDTH
    assert heights == pytest.approx(dict.fromkeys(heights, len(PANELS) * PANEL), abs=3)  # rounded bars
