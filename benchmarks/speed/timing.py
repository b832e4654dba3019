"""Clocks: the parts of one run, guarded; and rounds in which every run is between two plain passes."""

import gc
import re
import resource
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from .methods import PLAIN, Method
from .networks import Batches, smallest

GIGABYTE = 2**30


@dataclass(frozen=True)
class Limits:
    """When a run is given up, and when it is not repeated."""

    memory: float = 12.0  # gigabytes of the whole process
    seconds: float = 3600.0
    enough: float = 600.0  # seconds of all its runs: such long ones need fewer repeats


@dataclass
class Timed:
    """The repeats of one method: seconds by part, beside those of the plain passes before and after each."""

    parts: dict[str, list[float]] = field(default_factory=dict)
    plain: list[float] = field(default_factory=list)
    failed: str | None = None
    finished: bool = False

    def row(self) -> dict[str, Any]:
        row: dict[str, Any] = {"plain_seconds": self.plain, "seconds": self.parts}
        if not self.finished:
            row["unfinished"] = True
        return row if self.failed is None else row | {"failed": self.failed}


def clock(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def run_parts(method: Method, model: nn.Module, batches: Batches) -> dict[str, float]:
    """Run once, and return the seconds of each part."""
    gc.collect()
    torch.manual_seed(0)
    parts = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peers' own, on every batch
        begun = time.perf_counter()
        for part in method.run(model, batches):
            parts[part] = time.perf_counter() - begun
            begun = time.perf_counter()
    return parts


def warm_up(method: Method) -> None:
    """Run once on the smallest network: imports, threads and kernels are not what is measured."""
    model, batches = smallest()
    run_parts(method, method.prepare(model), batches)


def why_not(method: Method, network: str) -> str | None:
    """Say why a method is left out, if it is."""
    missing = [name for name in method.needs if find_spec(name) is None]
    if missing:
        return f"{', '.join(missing)} is not installed here"
    if method.only is not None and network not in method.only:
        return f"it does {' and '.join(method.only)} alone"
    return None


def interleave(
    methods: Mapping[str, Method],
    model: nn.Module,
    batches: Batches,
    *,
    repeats: int,
    limits: Limits,
    say: Callable[[str], None],
) -> Iterator[tuple[str, Timed]]:
    """Measure all methods in rounds; give each as it stands after each of its runs."""
    run_parts(PLAIN, model, batches.first(2))  # the first one of all is slower
    before = run_parts(PLAIN, model, batches)["fit"]
    timed = {name: Timed() for name in methods}
    for number in range(repeats):
        for name, method in methods.items():
            one = timed[name]
            if one.finished:
                continue
            try:
                if number == 0:
                    warm_up(method)
                prepared = method.prepare(model)  # anew each time: some peers leave their tensors on it
                with guarded(limits):
                    for part, seconds in run_parts(method, prepared, batches).items():
                        one.parts.setdefault(part, []).append(seconds)
            except Exception as error:  # whatever a peer may raise: the others go on
                one.failed = short(error)
            after = run_parts(PLAIN, model, batches)["fit"]
            one.plain += [before, after]
            before = after
            total = sum(values[-1] for values in one.parts.values())
            spent = sum(map(sum, one.parts.values()))
            one.finished = one.failed is not None or number == repeats - 1 or spent > limits.enough
            done = f"{total:.2f} s, plain {one.plain[-1]:.2f} s" if one.failed is None else f"failed: {one.failed}"
            say(f"{name}, {number + 1} of {repeats}: {done}")
            yield name, one


@contextmanager
def guarded(limits: Limits) -> Iterator[None]:
    """Raise within, instead of going on, once the process has more memory or the work takes longer than allowed."""

    def too_long(number: int, frame: object) -> None:
        raise TimeoutError(f"took more than {limits.seconds:g} s")

    before, hard = resource.getrlimit(resource.RLIMIT_DATA)
    handler = signal.signal(signal.SIGALRM, too_long)
    resource.setrlimit(resource.RLIMIT_DATA, (int(limits.memory * GIGABYTE), hard))
    signal.setitimer(signal.ITIMER_REAL, limits.seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        resource.setrlimit(resource.RLIMIT_DATA, (before, hard))


def short(error: BaseException) -> str:
    """Return an error in one line, without the paths of this machine."""
    lines: Sequence[str] = str(error).strip().splitlines() or [""]
    told = re.sub(r"(/[\w.+-]+){2,}", "…", lines[0])
    return f"{type(error).__name__}: {told[:300]}"
