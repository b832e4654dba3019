"""Lines and branches of src/infoform, outside of experiments, that the tests run, by coverage.py; has no quick form."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ..common import ROOT
from . import claim

LINES, BRANCHES = 95.0, 90.0
SKIPPED = "*/experiments/*"


def run(*, quick: bool, seed: int) -> dict[str, Any]:
    """Return the shares of lines and branches."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        given = {**os.environ, "COVERAGE_FILE": str(Path(folder) / "data")}
        watch = [sys.executable, "-m", "coverage", "run", "--branch", "--source=src/infoform", f"--omit={SKIPPED}"]
        started = time.time()
        command = [*watch, "-m", "pytest", "-q", "tests"]
        done = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True)
        seconds = time.time() - started
        told = [sys.executable, "-m", "coverage", "json", f"--omit={SKIPPED}", "-o", str(report)]
        subprocess.run(told, cwd=ROOT, env=given, capture_output=True, check=True)
        totals = json.loads(report.read_text())["totals"]
    lines = 100 * totals["covered_lines"] / totals["num_statements"]
    branches = 100 * totals["covered_branches"] / totals["num_branches"]
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else "nothing said"
    claims = [
        claim("the tests pass", done.returncode == 0, last),
        claim(f"lines run by the tests: at least {LINES:.0f} %", lines >= LINES, f"{lines:.1f} %"),
        claim(f"branches run by the tests: at least {BRANCHES:.0f} %", branches >= BRANCHES, f"{branches:.1f} %"),
    ]
    said = (
        f"{lines:.1f} % of {totals['num_statements']:,} lines and {branches:.1f} % of {totals['num_branches']:,} "
        f"branches of `src/infoform` outside of experiments, in {seconds / 60:.0f} minutes. Code that only "
        "subprocesses run does not count."
    )
    return {"claims": claims, "lines": lines, "branches": branches, "seconds": seconds, "said": said}
