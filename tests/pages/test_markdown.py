"""Tables, bold cells, facts and folded parts in Markdown."""

from infoform.pages.markdown import bold_best, bullets, facts, folded, table


def test_tables_are_markdown() -> None:
    assert table(["a", "b"], [["x", "1"]]) == "| a | b |\n| --- | ---: |\n| x | 1 |"
    assert table(["a", "b", "c"], [["x", "y", "1"]], words=2).splitlines()[1] == "| --- | --- | ---: |"


def test_the_best_cells_are_bold() -> None:
    assert bold_best(["x", "y"], [2.0, 1.0]) == ["x", "**y**"]
    assert bold_best(["x", "y"], [2.0, 1.0], largest=True) == ["**x**", "y"]


def test_facts_are_a_list() -> None:
    assert bullets(["a", "b"]) == "- a\n- b"
    assert facts({"rate": 1e-3, "sets": ["a", "b"]}) == "- rate = 0.001\n- sets = [a, b]"


def test_a_folded_part_keeps_its_markdown() -> None:
    assert folded("More", "- a") == '<details markdown="1">\n<summary>More</summary>\n\n- a\n\n</details>'
