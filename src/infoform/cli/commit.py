"""The commit of the code that runs, where it is a clone."""

import subprocess
from pathlib import Path


def commit(folder: Path = Path(__file__).parent) -> str | None:
    """Return twelve digits, with a `+` where the code was changed since; None where git does not know these files.

    A package installed inside somebody else's repository (in its `.venv`, say) is not tracked there: that commit is
    not ours.
    """
    try:
        if _git(folder, "ls-files", "--", "*.py") == "":
            return None
        head = _git(folder, "rev-parse", "--short=12", "HEAD")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no", "--", "..")
    except OSError:  # no git on this machine
        return None
    return head + ("+" if changed else "") if head else None


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
