"""The scripts of examples/ are short, run as they stand, and are listed in the README."""

import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))


def test_there_are_five() -> None:
    assert len(SCRIPTS) >= 5


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_script_is_short_and_listed(script: Path) -> None:
    assert len(script.read_text(encoding="utf-8").splitlines()) < 60
    assert f"(examples/{script.name})" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_script_runs(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(script)])  # not pytest's own arguments
    runpy.run_path(str(script), run_name="__main__")
    assert "%" in capsys.readouterr().out
