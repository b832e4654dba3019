"""Two versions of infoform beside each other: fits of the same networks, in turns, in one run.

    git worktree add out/before COMMIT
    python -m benchmarks.two_versions out/before

Each version runs in a process of its own, which has built the network and its data, and waits. Rounds go: a plain
gradient pass and a fit of the one, then of the other. What counts is the ratio of the two in one round, since a shared
machine is fast and slow for minutes at a time. Writes benchmarks/results/two_versions.json.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.common import ROOT, environment, read_results, write_results

from infoform.common.provenance import commit

NETWORKS = ("mlp", "lenet", "resnet18")
METHODS = ("inf", "diag")
WORKER = """
import sys, time
import torch
from torch.nn import functional
import infoform
from benchmarks.speed.networks import FULL

model, batches = FULL[sys.argv[1]].build()
batches = list(batches)

def plain():
    for inputs, labels in batches:
        model.zero_grad(set_to_none=True)
        functional.cross_entropy(model(inputs), labels).backward()
    model.zero_grad(set_to_none=True)

def timed(work):
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun

print("ready", flush=True)
for line in sys.stdin:
    work = plain
    if line.strip() != "plain":
        structure = line.strip()
        work = lambda: infoform.Laplace(model, "classification", structure=structure).fit(batches, progress=False)
    print(timed(work), flush=True)
"""


class Worker:
    """A process with one version of the library, and a network in memory."""

    def __init__(self, tree: Path, network: str) -> None:
        paths = {**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}", "OMP_WAIT_POLICY": "PASSIVE"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", WORKER, network],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=tree,
            env=paths,
        )
        self._answer()

    def seconds(self, work: str) -> float:
        """Return how long this takes: "plain" for a gradient pass, or the fit of a structure."""
        assert self._process.stdin is not None
        print(work, file=self._process.stdin, flush=True)
        return float(self._answer())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise RuntimeError("a worker has stopped; its own error is above.")
        return line


def compare(trees: Sequence[Path], network: str, rounds: int) -> dict[str, Any]:
    """Return, by method, fits in plain passes for both trees, and the ratio of the second to the first."""
    workers = [Worker(tree, network) for tree in trees]
    found: dict[str, Any] = {}
    for method in METHODS:
        for worker in workers:  # not counted: memory is got, and kernels are chosen
            worker.seconds(method)
        passes: list[list[float]] = [[] for _ in trees]
        seconds: list[list[float]] = [[] for _ in trees]
        for number in range(rounds):
            order = [0, 1] if number % 2 == 0 else [1, 0]
            for place in order:
                plain = workers[place].seconds("plain")
                seconds[place].append(workers[place].seconds(method))
                passes[place].append(seconds[place][-1] / plain)
        ratios = [after / before for before, after in zip(*seconds, strict=True)]
        found[method] = {
            "plain_passes": [median(one) for one in passes],
            "seconds": seconds,
            "ratio": median(ratios),
            "ratios": ratios,
        }
        print(f"{network} {method}: {found[method]['plain_passes']}, ratio {found[method]['ratio']:.3f}", flush=True)
    for worker in workers:
        worker.close()
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.two_versions", description="Compare two versions.")
    parser.add_argument("before", type=Path, help="a checkout of the other version")
    parser.add_argument("--networks", nargs="+", default=NETWORKS)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args(arguments)
    commits = [commit(tree) for tree in (given.before, ROOT)]
    for network in given.networks:
        found = compare((given.before.resolve(), ROOT), network, given.rounds)
        row = {"before": commits[0], "after": commits[1], "rounds": given.rounds, **environment(), "methods": found}
        results = read_results("two_versions", empty={})
        write_results("two_versions", {**results, network: row})


if __name__ == "__main__":
    main()
