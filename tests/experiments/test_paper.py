"""No table or figure of the paper is missing from the list, and no link of it is dead."""

import os
import re
from pathlib import Path

import pytest

from infoform.experiments import EXPERIMENTS, get_experiment
from infoform.experiments.paper import MAIN, SUPPLEMENT, paper_table

ROOT = Path(__file__).parents[2]
ITEMS = (*MAIN, *SUPPLEMENT)
FLOAT = re.compile(r"\\begin\{(table|figure)\*?\}(.*?)\\end\{\1\*?\}", re.DOTALL)


def test_every_table_and_figure_of_the_source_is_listed_in_order() -> None:
    source = Path(os.environ.get("INFOFORM_DATA", "")).parent / "paper.tex"
    if not source.is_file():
        pytest.skip("the paper's source is not beside the data")
    text = re.sub(r"(?m)(?<!\\)%.*", "", source.read_text(encoding="utf-8"))
    found = [(re.findall(r"\\label\{([^}]*)\}", body)[-1], kind) for kind, body in FLOAT.findall(text)]
    assert [(item.label, item.kind) for item in ITEMS] == found
    supplement = text.index("\\label{sm:sec:1}")
    assert [text.index(f"\\label{{{item.label}}}") < supplement for item in ITEMS] == [item in MAIN for item in ITEMS]


def test_every_item_has_a_counterpart_and_every_experiment_an_item() -> None:
    assert all(bool(item.experiments) != bool(item.instead) for item in ITEMS)
    beyond = {"cifar10-resnet"}  # networks of others, which the paper does not have
    assert {name for item in ITEMS for name in item.experiments} == set(EXPERIMENTS) - beyond
    for item in ITEMS:
        for name in item.experiments:
            named = get_experiment(name).reproduces
            assert item.kind in named or name == "mnist", (item.label, named)


def test_links_lead_to_pages_and_what_has_no_page_is_said_to_be_missing(tmp_path: Path) -> None:
    table = paper_table(ROOT / "docs" / "experiments")
    links = re.findall(r"\]\(([^)]*)\)", table)
    assert links
    assert all((ROOT / "docs" / link).is_file() for link in links)
    assert len(table.splitlines()) == 2 + len(ITEMS)
    (tmp_path / "toy.md").touch()
    rows = dict(zip((item.label for item in ITEMS), paper_table(tmp_path).splitlines()[2:], strict=True))
    assert rows["fig:1"].endswith("| [toy](experiments/toy.md) |")
    assert rows["fig:diag"].endswith("| `toy-rank`: not run yet |")
    assert rows["fig:entropy"].endswith("| `imagenet`: not run yet |")
    (tmp_path / "imagenet.md").touch()
    rows = dict(zip((item.label for item in ITEMS), paper_table(tmp_path).splitlines()[2:], strict=True))
    assert rows["fig:entropy"].endswith(
        "[imagenet](experiments/imagenet.md), on networks at hand, not all the paper's |"
    )


def test_every_page_is_of_results_that_are_there() -> None:
    pages = {page.stem for page in (ROOT / "docs" / "experiments").glob("*.md")}
    assert pages == {one.stem for one in (ROOT / "results").glob("*.json") if not one.stem.endswith("-quick")}
