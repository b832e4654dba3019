"""The measured tables of docs/structures.md are what the committed results say."""

from benchmarks.structures_page import BEGIN, END, PAGE, measured


def test_the_page_has_the_tables_of_the_results() -> None:
    text = PAGE.read_text(encoding="utf-8")
    shown = text.partition(BEGIN)[2].partition(END)[0].strip()
    assert shown == measured(), "results have changed: run python -m benchmarks.structures_page"
