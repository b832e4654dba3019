"""A process that answers with one library: asked for a piece of work, it does it and says how long it took.

    python -m benchmarks.answers.worker infoform CASE          # PYTHONPATH decides which version is imported
    python -m benchmarks.answers.worker laplace-torch CASE     # in the peers' environment

Reads requests and writes answers, a JSON object a line. An answer has seconds of the work and of plain forward passes
over the same inputs beside it, or the reason why there is none.
"""

import argparse
import json
import resource
import sys
import time
import warnings
from pathlib import Path
from statistics import median
from typing import Any

import torch
from benchmarks.answers.cases import cases
from benchmarks.answers.quality import Parts, read_parts

SHORTEST, MOST_SINGLE = 1.0, 20  # seconds and inputs of a loop over single inputs
FORWARDS = 2  # plain passes before a piece of work, and as many after it; the median counts


def timed(work: Any) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def respond(library: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Do what is asked; memory and time that a library does not have are answers, too."""
    try:
        if request["do"] == "predict":
            return measure_predict(library, request["way"], request["count"])
        if request["do"] == "tune":
            return measure_tune(library, request["kind"], request["count"], request["options"])
        return library.quality(request["row"], Path(request["to"]))
    except (RuntimeError, MemoryError, ValueError, NotImplementedError, AttributeError, TypeError) as error:
        told = " ".join(str(error).split())
        memory = isinstance(error, MemoryError) or "allocate memory" in told
        return {"failed": "out of memory" if memory else f"{type(error).__name__}: {told[:160]}"}


def measure_predict(library: Any, way: str, count: int) -> dict[str, Any]:
    """Time one way of predicting a batch, or single inputs in a loop, and the plain network on the same inputs."""
    work, plain = library.way(way), library.model
    with torch.no_grad():
        if count > 1:
            x = library.inputs[:count]
            forwards = [timed(lambda: plain(x)) for _ in range(FORWARDS)]
            seconds = [timed(lambda: work(x))]
            forwards += [timed(lambda: plain(x)) for _ in range(FORWARDS)]
            return {"forward": median(forwards), "seconds": seconds[0]}
        forwards, seconds = [], []
        for x in library.inputs[:MOST_SINGLE].split(1):
            forwards.append(timed(lambda x=x: plain(x)))
            seconds.append(timed(lambda x=x: work(x)))
            if len(seconds) >= 3 and sum(seconds) > SHORTEST:
                break
        return {"forward": median(forwards), "seconds": median(seconds)}


def measure_tune(library: Any, kind: str, count: int, options: dict[str, Any]) -> dict[str, Any]:
    """Time `tune(val_loader)` between two predictions of the same data; temperature scaling between two passes."""
    batches = list(zip(library.inputs[:count].split(100), library.labels[:count].split(100), strict=True))
    predict, tune = library.tuning(kind, batches, options)
    with torch.no_grad():
        forward = timed(lambda: [library.model(x) for x, _ in batches])
    before, seconds, after = timed(predict), timed(tune), timed(predict)
    return {"forward": forward, "predict": (before + after) / 2, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("library", choices=["infoform", "laplace-torch"])
    parser.add_argument("case")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--cifar", type=Path)
    parser.add_argument("--memory", type=int, help="gigabytes of address space that the process may have")
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # of a network that was hardly trained
    if given.memory:
        resource.setrlimit(resource.RLIMIT_AS, (given.memory << 30, given.memory << 30))
    case = cases(given.quick)[given.case]
    model, inputs, labels = case.make(given.cifar, max(case.inputs, case.fitted))
    parts: Parts | None = read_parts(given.cifar) if given.cifar and case.scored else None
    if given.library == "infoform":
        from benchmarks.answers.ours import Ours as Library
    else:
        from benchmarks.answers.peer import LaplaceTorch as Library  # type: ignore[assignment]
    library = Library(case, model, inputs, labels, parts)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(respond(library, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
