"""The campaign: what a user may trust, attacked part by part, with figures.

    python -m benchmarks.trust                 # all parts, hours; benchmarks/results/trust.json and docs/trust.md
    python -m benchmarks.trust --quick         # a small form of each, in minutes, to out/trust.json: part of CI
    python -m benchmarks.trust --only threads  # one part; give it several times for several
    python -m benchmarks.trust --seconds 600   # no part begins another piece of its work after ten minutes
    python -m benchmarks.trust --page          # writes the page from the results alone

The long parts keep what they have done in out/, so that a stopped run goes on. A part is a file with
`run(*, quick, seed)`. It returns a dict: under "claims" a list of `claim(...)`, under "left" what was not done yet, if
anything, and beside these any figures that JSON can hold. To add a part, write the file and a line in `PARTS`.
"""

import os
import time
from typing import Any

# name of the file: what it attacks
PARTS: dict[str, str] = {
    "threads": "Threads that share a posterior",
    "loaders": "Loaders",
    "numerics": "Numbers over N, τ, scales and dtypes",
    "calibration": "Coverage and rank statistics",
    "determinism": "The same answer again",
    "flat_memory": "Memory over many predictions",
    "stream": "A long stream of examples",
    "kills": "Processes killed at any point",
    "torchrun": "Several processes, started again and again",
    "hostile_files": "Hostile files",
    "mutation": "Mutants that the tests kill",
    "line_coverage": "Lines and branches that the tests run",
    "licences": "Licences of what it depends on",
}


def claim(said: str, holds: bool, figure: str) -> dict[str, Any]:
    """Return one thing that must hold, whether it does, and the figure that tells."""
    return {"claim": said, "holds": bool(holds), "figure": figure}


def goes_on() -> bool:
    """Whether a part begins another piece of its work: until the time that `--seconds` has set."""
    return time.time() < float(os.environ.get("TRUST_ENDS", "inf"))
