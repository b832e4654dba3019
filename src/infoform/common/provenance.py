"""What a result must say about the run that made it: the commit of the code, and the memory that it took."""

import subprocess
import sys
from pathlib import Path


def commit(folder: Path = Path(__file__).parent) -> str | None:
    """Return the commit of the code in twelve digits, with a `+` where the code was changed since.

    None where git does not track these files: a package that is installed inside another repository (in its `.venv`,
    for example) is not tracked there, and the commit of that repository is not ours.
    """
    try:
        if _git(folder, "ls-files", "--", "*.py") == "":
            return None
        head = _git(folder, "rev-parse", "--short=12", "HEAD")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no", "--", "..")
    except OSError:  # no git on this machine
        return None
    return head + ("+" if changed else "") if head else None


def peak_memory() -> int | None:
    """Return the largest resident size of this process so far, in bytes; None where the system does not tell it."""
    try:
        import resource
    except ImportError:
        return None
    # macOS counts bytes, Linux kibibytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
