"""Peak memory of `tune(val_loader)` beside that of one prediction of the same data, each above what was there before.

    python -m benchmarks.answers.memory [--cifar cifar10.npz]     # writes answers.json and docs/answers.md

Each row is measured in a process of its own, which has fitted and predicted before, with a C library that gives freed
memory back at once (see speed/memory.py).
"""

import argparse
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

from benchmarks.answers.cases import cases
from benchmarks.answers.ours import PRECISION, Ours
from benchmarks.answers.page import page
from benchmarks.common import ROOT, command_line, read_results, write_page, write_results
from benchmarks.speed.memory import AT_ONCE, resident, start

from infoform.common.provenance import commit

ROWS = {  # network -> inputs
    "mlp": 1000,
    "lenet": 1000,
    "resnet20": 200,
}
KINDS = ("linear", "linear-mc", "mc")


def measure(network: str, kind: str, *, cifar: Path | None, quick: bool = False) -> dict[str, int]:
    """Return the peaks of a prediction and of a search in this process, in bytes."""
    case = cases(quick)[network]
    count = case.tuned[0] if quick else ROWS[network]
    model, inputs, labels = case.make(cifar, max(count, case.fitted))
    batches = list(zip(inputs[:count].split(100), labels[:count].split(100), strict=True))
    ours = Ours(case, model, inputs, labels, None)
    predict, tune = ours.tuning(kind, batches, {})
    predict()  # what a fit computes once is not counted
    found: dict[str, int] = {"inputs": count}
    for name, work in (("predict", predict), ("tune", tune)):
        ours.all_layers.prior_precision = 2 * PRECISION  # for which a posterior has to be built in either case
        start()
        before = resident("VmRSS")
        work()
        found[name] = resident("VmHWM") - before
    return found


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--cifar", type=Path, help="cifar10.npz; without it pictures are made up")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one is not None:
        warnings.simplefilter("ignore")  # of a network that was hardly trained
        print(json.dumps(measure(*given.one, cifar=given.cifar)))
        return
    if not given.page:
        found = read_results("answers")
        rows: dict[str, dict[str, object]] = {}
        found["memory"] = {"commit": commit(ROOT / "src"), "rows": rows}
        for network in ROWS:
            for kind in KINDS:
                rows.setdefault(network, {})[kind] = _in_child(network, kind, given.cifar)
                write_results("answers", found)
    write_page("answers", page())


def _in_child(network: str, kind: str, cifar: Path | None) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.answers.memory", "--one", network, kind]
    command += [] if cifar is None else ["--cifar", str(cifar)]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **AT_ONCE}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{network} {kind} ended with {done.returncode}:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    print(network, kind, json.dumps(found), flush=True)
    return found


if __name__ == "__main__":
    main()
