"""The documented script for several processes, started by torchrun again and again: it ends well each time.

A process that aborts at its very end (SIGABRT) makes torchrun fail. What is asked of each run: exit code 0, and the
same posterior, byte for byte. Runs at the present commit are kept in out/trust-torchrun.json; a stopped part goes on.
"""

import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from infoform.common.provenance import commit

from ..common import ROOT, write_json
from . import claim, goes_on

KEPT = ROOT / "out" / "trust-torchrun.json"
RUNS, QUICK = 40, 2


def run(*, quick: bool, seed: int) -> dict[str, Any]:
    """Return how many runs ended well, and how the others ended."""
    sys.path.insert(0, str(ROOT / "tests"))
    from torchrun_script import run_documented_script

    now = commit(ROOT / "src" / "infoform")
    kept = json.loads(KEPT.read_text()) if KEPT.exists() and not quick else {}
    rows: list[dict[str, Any]] = kept["rows"] if kept.get("commit") == now else []
    while len(rows) < (QUICK if quick else RUNS) and (goes_on() or not rows):
        with tempfile.TemporaryDirectory() as name:
            done = run_documented_script(Path(name))
            saved = Path(name) / "posterior.safetensors"
            digest = hashlib.sha256(saved.read_bytes()).hexdigest()[:16] if saved.exists() else None
        rows.append({"code": done.returncode, "aborted": "SIGABRT" in done.stderr, "posterior": digest})
        if not quick:
            write_json(KEPT, {"commit": now, "rows": rows})
    well = sum(one["code"] == 0 for one in rows)
    saved_by = {one["posterior"] for one in rows}
    aborted = sum(one["aborted"] for one in rows)
    return {
        "claims": [
            claim("the documented torchrun script ends well", well == len(rows),
                  f"{well} of {len(rows)} runs, {aborted} aborted"),
            claim("it leaves the same posterior, byte for byte", len(saved_by) == 1 and None not in saved_by,
                  f"{len(saved_by)} file" + "s" * (len(saved_by) > 1)),
        ],
        "left": [f"{RUNS - len(rows)} runs"] if len(rows) < RUNS and not quick else [],
        "rows": rows,
    }  # fmt: skip
