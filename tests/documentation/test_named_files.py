"""Files of the repository that hand-written pages name exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TEXTS = {page: page.read_text(encoding="utf-8") for page in PAGES}
NAMED = [
    (page, name)
    for page, text in TEXTS.items()
    if "do not edit" not in text.partition("\n## ")[0]  # a generated page says so at its top
    for name in sorted(set(re.findall(r"`((?:src|tests|benchmarks|examples|\.ci|\.mkdocs)/[\w./-]*)`", text)))
]


@pytest.mark.parametrize(("page", "name"), NAMED, ids=[f"{page.stem}: {name}" for page, name in NAMED])
def test_a_file_that_a_page_names_exists(page: Path, name: str) -> None:
    assert (ROOT / name).exists(), f"{page.relative_to(ROOT)} names {name}"


def test_pages_name_files() -> None:
    assert len(NAMED) > 10
