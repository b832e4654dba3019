"""Lines and branches of src/infoform, outside of experiments, that the tests run, by coverage.py; has no quick form.

    make coverage                                                    # runs the tests and does what follows
    python -m benchmarks.trust.line_coverage out/coverage.json       # tells the shares of a run; fails below the bounds
    python -m benchmarks.trust.line_coverage out/coverage.json report                                 # only tells them

What is watched is in pyproject.toml. Code that only subprocesses run does not count.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..common import ROOT
from . import claim

LINES, BRANCHES = 95.0, 90.0
LONGEST = 4 * 3600  # seconds that the tests may take on a busy machine


def run(*, quick: bool, seed: int) -> dict[str, Any]:
    """Run all tests, and return the shares of lines and branches."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        given = {**os.environ, "COVERAGE_FILE": str(Path(folder) / "data")}
        started = time.time()
        command = [sys.executable, "-m", "coverage", "run", "-m", "pytest", "-q"]
        done = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, timeout=LONGEST)
        seconds = time.time() - started
        told = [sys.executable, "-m", "coverage", "json", "-o", str(report)]
        subprocess.run(told, cwd=ROOT, env=given, capture_output=True, check=True, timeout=600)
        found = shares(json.loads(report.read_text()))
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else "nothing said"
    found["claims"].insert(0, claim("the tests pass", done.returncode == 0, last))
    return found | {"seconds": seconds, "said": f"{found['said']} The tests took {seconds / 60:.0f} minutes."}


def shares(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the shares of lines and branches by a report of coverage.py, and the files that miss most."""
    totals = report["totals"]
    lines = 100 * totals["covered_lines"] / totals["num_statements"]
    branches = 100 * totals["covered_branches"] / totals["num_branches"]
    missed = {name: one["summary"]["missing_lines"] for name, one in report["files"].items()}
    return {
        "claims": [
            claim(f"lines run by the tests: at least {LINES:.0f} %", lines >= LINES, f"{lines:.1f} %"),
            claim(f"branches run by the tests: at least {BRANCHES:.0f} %", branches >= BRANCHES, f"{branches:.1f} %"),
        ],
        "lines": lines,
        "branches": branches,
        "missed": dict(sorted(missed.items(), key=lambda one: -one[1])[:10]),
        "said": f"{lines:.1f} % of {totals['num_statements']:,} lines and {branches:.1f} % of "
        f"{totals['num_branches']:,} branches of `src/infoform` outside of experiments. Code that only subprocesses "
        "run does not count.",
    }


def main(path: str, *, only_report: bool = False) -> int:
    """Print the shares in a report; return 1 if one is too low, unless they are only asked for."""
    found = shares(json.loads(Path(path).read_text()))
    print(found["said"])
    for name, count in found["missed"].items():
        print(f"  {count} lines not run: {name}")
    for one in found["claims"]:
        print(f"{'holds' if one['holds'] else 'does not hold'}: {one['claim']}: {one['figure']}")
    return 0 if only_report or all(one["holds"] for one in found["claims"]) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], only_report=sys.argv[2:] == ["report"]))
