"""Templates: every name has its value, and what has none is left out with its heading."""

from pathlib import Path

import pytest

from infoform.pages.template import PageTemplate

TEXT = """# Title

Of $count networks ${best}s are best, for $$1.

## Sampled

$sampled

### Deeper

$sampled

## Linear

$linear
<!-- part: network -->
### $name

It has $weights weights.
"""


def test_names_get_their_values() -> None:
    text = PageTemplate(TEXT).fill(count=3, best="MLP", sampled="a", linear="b")
    assert text.startswith("# Title\n\nOf 3 networks MLPs are best, for $1.\n\n## Sampled\n\na\n\n### Deeper")
    assert text.endswith("## Linear\n\nb")


def test_what_is_none_is_left_out_with_its_headings() -> None:
    text = PageTemplate(TEXT).fill(count=3, best="MLP", sampled=None, linear=None)
    assert text == "# Title\n\nOf 3 networks MLPs are best, for $1."
    assert "## Sampled" not in PageTemplate(TEXT).fill(count=3, best="MLP", sampled=None, linear="b")


def test_a_heading_above_another_stays_where_that_has_a_text() -> None:
    assert PageTemplate("## A\n\n### B\n\n$b\n\n## C\n\n$c").fill(b="x", c=None) == "## A\n\n### B\n\nx"


def test_a_value_may_have_headings_of_its_own() -> None:
    assert PageTemplate("$parts\n\n## C\n\n$c").fill(parts="## A\n\na", c="x") == "## A\n\na\n\n## C\n\nx"


def test_a_part_is_a_template() -> None:
    template = PageTemplate(TEXT)
    assert template.part("network").fill(name="mlp", weights="1,000") == "### mlp\n\nIt has 1,000 weights."
    with pytest.raises(ValueError, match="has the parts network, got 'layer'"):
        template.part("layer")


@pytest.mark.parametrize("values", [{"a": 1}, {"a": 1, "b": 2, "c": 3}])
def test_missing_and_unused_values_are_named(values: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="a value for every name and no other"):
        PageTemplate("$a and $b").fill(**values)


def test_a_template_lies_beside_its_module(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("$a")
    assert PageTemplate.beside(str(tmp_path / "page.py")).fill(a=1) == "1"
