"""The guide on comparing shows the committed result, and its recommendation word for word."""

import json
from pathlib import Path

from benchmarks.compare import measured
from benchmarks.front_page import BEGIN, END

ROOT = Path(__file__).parents[2]
REMEDY = "python -m benchmarks.compare --page"


def test_the_page_shows_the_committed_comparison() -> None:
    text = (ROOT / "docs" / "compare.md").read_text(encoding="utf-8")
    assert text.partition(BEGIN)[2].partition(END)[0].strip() == measured(), REMEDY
    found = json.loads((ROOT / "benchmarks" / "results" / "compare.json").read_text(encoding="utf-8"))["result"]
    assert found["recommendation"]["reason"] in text
    assert all(f"| {one['name']} |" in text for one in found["methods"])
