"""The campaign: what a user may trust, attacked part by part, with figures.

    python -m benchmarks.trust                 # all parts, hours; benchmarks/results/trust.json and docs/trust.md
    python -m benchmarks.trust --quick         # a small form of each, in minutes, to out/trust.json: part of CI
    python -m benchmarks.trust --only threads  # one part; give it several times for several
    python -m benchmarks.trust --page          # writes the page from the results alone

A part is a file with `run(*, quick, seed)`. It returns a dict: under "claims" a list of `claim(...)`, and beside it any
figures that JSON can hold. To add a part, write the file and a line in `PARTS`.
"""

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
    "hostile_files": "Hostile files",
    "mutation": "Mutants that the tests kill",
    "line_coverage": "Lines and branches that the tests run",
    "licences": "Licences of what it depends on",
}


def claim(said: str, holds: bool, figure: str) -> dict[str, Any]:
    """Return one thing that must hold, whether it does, and the figure that tells."""
    return {"claim": said, "holds": bool(holds), "figure": figure}
