"""The commit told is that of infoform's own files."""

from pathlib import Path

import bounded
from infoform.common.provenance import commit, peak_memory


def _git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    done = bounded.run(["git", *identity, *arguments], cwd=folder, check=True)
    return done.stdout.strip()


def test_of_a_clone_and_of_a_changed_one(tmp_path: Path) -> None:
    inner = tmp_path / "package" / "inner"
    inner.mkdir(parents=True)
    (inner / "code.py").write_text("x = 1\n")
    _git(tmp_path, "init", "--quiet")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "--quiet", "--message", "one")
    head = _git(tmp_path, "rev-parse", "HEAD")[:12]
    assert commit(inner) == head
    (inner / "code.py").write_text("x = 2\n")
    assert commit(inner) == f"{head}+"


def test_files_that_another_repository_does_not_track(tmp_path: Path) -> None:
    inner = tmp_path / ".venv" / "infoform"
    inner.mkdir(parents=True)
    (inner / "code.py").write_text("x = 1\n")
    (tmp_path / "theirs.py").write_text("y = 1\n")
    _git(tmp_path, "init", "--quiet")
    _git(tmp_path, "add", "theirs.py")
    _git(tmp_path, "commit", "--quiet", "--message", "one")
    assert commit(inner) is None


def test_no_repository(tmp_path: Path) -> None:
    assert commit(tmp_path) is None


def test_the_peak_does_not_fall_below_what_is_held() -> None:
    before = peak_memory()
    held = bytearray(64 * 2**20)
    held[:: 2**12] = b"x" * len(held[:: 2**12])  # a page is memory once it is written to
    after = peak_memory()
    assert before is None or (after is not None and after >= max(before, len(held)))
