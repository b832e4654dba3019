"""Peak memory of each part of a method, measured in a process of its own.

The process builds model and data and runs the method on two batches, so that libraries are read and threads have their
buffers. Then it gives free pages back (malloc_trim), resets the kernel's high-water mark of its resident memory (5 into
/proc/self/clear_refs) and runs the method, doing the same after each part: VmHWM less what was resident when the part
began is its peak. Where the mark cannot be reset, a process that has never been larger gives the same for the first.

A C library keeps what is freed for later use, and how much depends on all that went before. For the peak of what is in
use it is told to give every freed block of 64 kB or more back at once; a second process, which leaves it alone, gives
the peak that the kernel sees.
"""

import ctypes
import gc
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from benchmarks.common import laplace_of

import infoform

from ..common import ROOT
from .methods import OURS, Method
from .networks import Network
from .timing import Limits, guarded, run_parts, short, warm_up

AT_ONCE = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}


def peak_in_child(arguments: Sequence[str], limits: Limits) -> dict[str, Any]:
    """Run this program again for the peaks of one method, once with each way to free memory, and return them."""
    found = _run_child(arguments, limits, AT_ONCE)
    return found if "failed" in found else found | {"resident": _run_child(arguments, limits, {}).get("peaks")}


def _run_child(arguments: Sequence[str], limits: Limits, environment: Mapping[str, str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.speed", *arguments]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=limits.seconds + 600,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"took more than {limits.seconds:g} s"}
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        return {"failed": f"ended with {done.returncode}: {short(RuntimeError(lines[-1]))}"}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def measure_peak(network: Network, method: Method, limits: Limits) -> dict[str, Any]:
    """Return the peaks of a run's parts in this process, in bytes above what was there when each began."""
    model, batches = network.build()
    prepared = method.prepare(model)
    warm_up(method)
    peaks: dict[str, int] = {}
    held: dict[str, int] = {}
    try:
        with guarded(limits):
            run_parts(method, prepared, batches.first(2))
            prepared = method.prepare(model)  # anew: some peers leave their tensors on it
            exact = start()
            before = begun = resident("VmRSS")
            torch.manual_seed(0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # peers' own, on every batch
                for part in method.run(prepared, batches):
                    peaks[part] = resident("VmHWM") - begun
                    start()
                    begun = resident("VmRSS")
                    held[part] = begun - before
    except Exception as error:
        return {"failed": short(error)}
    return {"peaks": peaks, "held": held, "model_and_data_bytes": before, "mark_reset": exact}


def statistics_bytes(network: Network, method: str) -> int | None:
    """Return what the running sums of one of our fits take, at most at a time; None for others."""
    if method not in OURS:
        return None
    model, _ = network.build()
    return infoform.plan(laplace_of(model, "classification", **OURS[method])).statistics_bytes


def resident(field: str) -> int:
    """Return the bytes that are resident now (VmRSS), or were at most since the last `start` (VmHWM)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}; peak memory needs Linux.")


def start() -> bool:
    """Let the mark begin anew; memory that is free must not hide what is needed next."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True
