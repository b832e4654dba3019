"""Pages that are written from results say what the committed results say, and no template retypes a number."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from benchmarks.common import TEMPLATES
from benchmarks.pages import PAGES as BENCHMARKS

from infoform.experiments import EXPERIMENTS
from infoform.experiments.page import page_text, read_notes
from infoform.records.study_result import Result

ROOT = Path(__file__).parents[2]
DOCS, RESULTS, PACKAGE = ROOT / "docs", ROOT / "results", ROOT / "src" / "infoform"


def experiment_page(name: str) -> str:
    path = RESULTS / f"{name}.json"
    return page_text(name, Result.load(path), notes=read_notes(path))


def benchmark_page(name: str) -> str:
    return BENCHMARKS[name]() + "\n"


def finished(name: str) -> bool:
    path = RESULTS / f"{name}.json"
    return path.exists() and Result.load(path).complete


PAGES: dict[str, Callable[[], str]] = {  # path in docs/ -> what makes its text
    **{f"experiments/{name}.md": partial(experiment_page, name) for name in EXPERIMENTS if finished(name)},
    **{f"{name}.md": partial(benchmark_page, name) for name in BENCHMARKS},
}
AGAIN = "results or templates have changed: python -m infoform.experiments NAME --page docs, python -m benchmarks.pages"


@pytest.mark.parametrize("name", PAGES)
def test_a_committed_page_is_that_of_the_committed_results(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name](), AGAIN


def test_every_page_of_an_experiment_has_a_result() -> None:
    written = {f"experiments/{path.name}" for path in (DOCS / "experiments").glob("*.md")}
    assert written == {name for name in PAGES if name.startswith("experiments/")}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_its_answer_before_its_method_and_its_run_last(name: str) -> None:
    text = (DOCS / name).read_text(encoding="utf-8")
    if name == "structures.md":  # written by hand, but for its tables
        return
    headings = re.findall(r"^## (.*)$", text, flags=re.MULTILINE)
    assert headings[0] == "What it means"
    assert "How it was measured" in headings
    answer = text.partition("\n## ")[0]
    assert "\n| " in answer or "\n![" in answer
    assert text.rstrip().endswith("</details>")
    assert text.index("<details") > text.index("## How it was measured")


SPANS = re.compile(r"`[^`]*`|\]\([^)]*\)|<!--.*?-->|\$\{\w+\}|\$\w+", flags=re.DOTALL)  # code, links, names
NUMBER = re.compile(r"(?<![\w^√-])\d[\d.,]*\d|(?<![\w^√-])\d(?![\w-])")
ALLOWED = {"0", "1"}  # of formulas: τ = 0, 1/k
EXCEPT = {  # the names of things
    "memory.md": {"7", "224", "1,000"},
}


def templates() -> list[Path]:
    return sorted([*PACKAGE.rglob("*.md"), *TEMPLATES.glob("*.md")])


def test_every_experiment_and_benchmark_has_a_template() -> None:
    assert len(templates()) > 20


@pytest.mark.parametrize("path", templates(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_template_has_no_number_of_its_own(path: Path) -> None:
    text = SPANS.sub(" ", path.read_text(encoding="utf-8"))
    text = re.sub(r"^\d\. ", "", text, flags=re.MULTILINE)  # items of a list
    found = {number.rstrip(".,") for number in NUMBER.findall(text)}
    assert found - ALLOWED - EXCEPT.get(path.name, set()) == set()


def test_every_picture_of_a_page_is_there() -> None:
    for name in PAGES:
        for picture in re.findall(r"!\[[^]]*\]\(([^)]+)\)", (DOCS / name).read_text(encoding="utf-8")):
            assert ((DOCS / name).parent / picture).is_file(), f"{name}: {picture}"
