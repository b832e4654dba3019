"""Every Python snippet of the README and the docs runs, in order, one namespace a page."""

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_snippets_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": page.stem}
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# ")
    for match in re.finditer(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
        first_line = text.count("\n", 0, match.start(1))
        code = "\n" * first_line + match[1]  # so that a traceback names the line of the page
        exec(compile(code, str(page), "exec"), namespace)


def test_the_readme_has_snippets() -> None:
    assert "```python\n" in (ROOT / "README.md").read_text(encoding="utf-8")
