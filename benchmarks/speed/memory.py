"""Peak memory of one method, measured in a process of its own.

The process builds model and data, gives free pages back (malloc_trim), resets the kernel's high-water mark of its
resident memory (5 into /proc/self/clear_refs) and runs the method once; VmHWM less what was resident before is the
peak above model and data. Where the mark cannot be reset, a process that has never been larger gives the same.
"""

import ctypes
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .methods import Method
from .networks import Network
from .timing import Limits, guarded, run_parts, short, warm_up

ROOT = Path(__file__).resolve().parents[2]


def peak_in_child(arguments: Sequence[str], limits: Limits) -> dict[str, Any]:
    """Run this program again for one peak, and return what it found."""
    command = [sys.executable, "-m", "benchmarks.speed", *arguments]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=limits.seconds + 600, check=False
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"took more than {limits.seconds:g} s"}
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        return {"failed": f"ended with {done.returncode}: {short(RuntimeError(lines[-1]))}"}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def measure_peak(network: Network, method: Method, limits: Limits) -> dict[str, Any]:
    """Return the peak of a run in this process, in bytes above what model and data take."""
    model, batches = network.build()
    prepared = method.prepare(model)
    warm_up(method)
    _trim()
    exact = _reset_mark()
    before = _status("VmRSS")
    try:
        with guarded(limits):
            run_parts(method, prepared, batches)
    except Exception as error:
        return {"failed": short(error)}
    return {"peak_bytes": _status("VmHWM") - before, "model_and_data_bytes": before, "mark_reset": exact}


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}; peak memory needs Linux.")


def _reset_mark() -> bool:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _trim() -> None:
    ctypes.CDLL(None).malloc_trim(0)
