"""Peak memory of fits within a budget, each measured in a process of its own, beside what was promised.

    python -m benchmarks.memory            # writes benchmarks/results/memory.json and docs/memory.md, in minutes
    python -m benchmarks.memory --page     # writes the page alone

A peak is the high-water mark of resident memory above model and data (see speed/memory.py: the C library gives freed
memory back at once). A checksum over all that was measured tells whether it is that of the fit without a budget.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from benchmarks.common import laplace_of
from torch import nn

import infoform
from infoform.common.bytes import read_bytes
from infoform.curvature.curvature import pack_curvature

from .common import ROOT, command_line, environment, read_results, write_page, write_results
from .memory_page import page
from .speed.memory import AT_ONCE, resident, start
from .speed.networks import Batches, Network, from_pytorchcv
from .transformer_plan import plan_transformer


@dataclass(frozen=True)
class Case:
    """One fit: a network of pytorchcv, images of 224², and what `fit` and `Laplace` are told."""

    network: str
    images: int
    batch: int
    structure: str = "inf"
    chunk: str = "16MiB"
    max_memory: str | None = None
    offload: bool = False  # into a folder

    def build(self) -> tuple[nn.Module, Batches]:
        make = partial(from_pytorchcv, self.network)
        return Network(self.network, make, (3, 224, 224), 1000, self.images, self.batch, 1).build()


def budgets(network: str, images: int, batch: int, sizes: Sequence[str], **options: Any) -> list[Case]:
    """Return the fit without a budget, and those within budgets, the smallest of which off-load what is finished."""
    first = Case(network, images, batch, **options)
    return [first, *(Case(network, images, batch, max_memory=size, offload=True, **options) for size in sizes)]


CASES = [
    *budgets("resnet152", 1, 1, ["400MB", "300MB"]),
    *budgets("resnet18", 4, 2, ["150MB", "120MB"]),
    Case("resnet18", 4, 2, chunk="1MiB"),
]


def measure(case: Case) -> dict[str, Any]:
    """Run one fit in this process, and return its peak and what was planned."""
    model, batches = case.build()
    laplace = laplace_of(model, "classification", structure=case.structure, chunk=case.chunk)
    example = next(iter(batches))[0]
    planned = infoform.plan(laplace, example=example, max_memory=case.max_memory, offload=case.offload)
    small = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 3))  # what libraries load is not counted
    laplace_of(small, "classification", rank=3).fit([torch.randn(4, 3, 4, 4)], progress=False)
    with tempfile.TemporaryDirectory(dir=ROOT / "out") as folder:
        start()
        before, begun = resident("VmRSS"), time.perf_counter()
        offload = folder if case.offload else None
        laplace.fit(batches, max_memory=case.max_memory, offload=offload, progress=False)
        peak, seconds = resident("VmHWM") - before, time.perf_counter() - begun
        digest = 0
        for name, layer in laplace.curvature.items():
            for key, tensor in sorted(pack_curvature(layer)[0].items()):
                digest = zlib.crc32(tensor.contiguous().numpy().data, zlib.crc32(f"{name} {key}".encode(), digest))
    return asdict(case) | {
        "budget_bytes": None if case.max_memory is None else read_bytes(case.max_memory),
        "groups": max(1, len(planned.groups)),
        "planned_peak_bytes": planned.peak_bytes,
        "statistics_bytes": planned.statistics_bytes,
        "posterior_bytes": planned.total_bytes,
        "peak_bytes": peak,
        "seconds": round(seconds, 1),
        "digest": f"{digest:08x}",
    }


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--missing", action="store_true", help="measure only what the results do not hold yet")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one is not None:
        print(json.dumps(measure(Case(**json.loads(asked.one)))))
        return
    if not asked.page:
        found = read_results("memory", empty={"fits": []}) if asked.missing else {"fits": []}
        found["environment"] = environment()
        if "transformer" not in found:
            found["transformer"] = plan_transformer()
        known = [{name: row[name] for name in asdict(CASES[0])} for row in found["fits"]]
        for case in CASES:
            if asdict(case) not in known:
                found["fits"].append(_in_child(case))
                write_results("memory", found)
    write_page("memory", page())


def _in_child(case: Case) -> dict[str, Any]:
    (ROOT / "out").mkdir(exist_ok=True)
    command = [sys.executable, "-m", "benchmarks.memory", "--one", json.dumps(asdict(case))]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **AT_ONCE}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{case} ended with {done.returncode}:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    print(json.dumps(found), flush=True)
    return found


if __name__ == "__main__":
    main()
