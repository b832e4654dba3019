"""One export from beginning to end: build, trace, write beside the file's name, run, compare, rename."""

import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from infoform.common.bytes import show_bytes
from infoform.common.checks import check_choice
from infoform.common.whole_files import writing
from infoform.export.targets import TARGETS, Names, Runner, Target
from infoform.export.trace import trace

TOLERANCE = 1e-5  # of every output in float32, absolute or relative to its largest value
RUNS, SECONDS = 20, 1.0  # of the measurement of latency, whichever ends first


@dataclass(frozen=True)
class Export:
    """A file that was exported, and how it compares with PyTorch.

    Args:
        path: the file.
        target: its format.
        manifest: what the file says of itself.
        nbytes: size of the file.
        differences: largest difference to PyTorch, by output, relative to values above 1.
        seconds: one example by the target's own runtime, the median of several runs.
        plain_seconds: one example by the network alone in PyTorch.

    Example:
        ```python
        done = laplace.export("model.onnx", kind="last-layer", example=images)
        assert done.differences["probs"] < 1e-5
        ```
    """

    path: Path
    target: str
    manifest: Mapping[str, Any]
    nbytes: int
    differences: Mapping[str, float]
    seconds: float
    plain_seconds: float

    def __str__(self) -> str:
        largest = max(self.differences.values())
        return (
            f"{self.path}: {self.manifest['kind']}, {show_bytes(self.nbytes)}; one example takes "
            f"{1e3 * self.seconds:.2f} ms ({self.seconds / self.plain_seconds:.1f} times the network alone in PyTorch, "
            f"{1e3 * self.plain_seconds:.2f} ms); outputs {', '.join(self.manifest['outputs'])} agree with PyTorch "
            f"within {largest:.0e}"
        )


def find_target(path: str | os.PathLike[str], to: str | None) -> tuple[Path, Target]:
    """Return the file to write and its format: as asked for, or by the file's suffix.

    Raises:
        ValueError: if the format is unknown, or the suffix tells another one.
        FileNotFoundError: if the folder does not exist.
        ImportError: if a package of the format is not installed.
    """
    file = Path(path)
    suffix = file.suffix.removeprefix(".")
    if to is None and suffix not in TARGETS:
        raise ValueError(
            f"the format of an export is told by its suffix, .{', .'.join(TARGETS)}, got '{file.name}'; rename it, or "
            "give to=."
        )
    name = suffix if to is None else to
    check_choice("to", name, tuple(TARGETS))
    if not file.parent.is_dir():
        raise FileNotFoundError(f"the folder '{file.parent}' does not exist; create it before exporting there.")
    TARGETS[name].check_installed()
    return file, TARGETS[name]


def write_export(
    graph: nn.Module,
    tensors: tuple[Tensor, ...],
    reference: Mapping[str, Tensor],
    path: Path,
    target: Target,
    *,
    names: Names,
    manifest: Mapping[str, Any],
    text: str,
) -> tuple[dict[str, float], float]:
    """Write a file that has been run and compared with PyTorch; an error leaves nothing, and an older file as it was.

    Args:
        graph: what is exported.
        tensors: examples of its inputs.
        reference: what it makes of them in PyTorch.
        path: the file.
        target: its format.
        names: of inputs and outputs.
        manifest: what the file says of itself.
        text: the same as JSON.

    Returns:
        The largest difference by output, and the seconds that one example takes.

    Raises:
        ValueError: if the model cannot be exported, or the file computes something else than PyTorch.
    """
    if target.max_batch is not None:  # memory is planned for the batch that is traced
        tensors = tuple(_filled(one, target.max_batch) for one in tensors)
    program = trace(graph, tensors, max_batch=target.max_batch)
    with tempfile.TemporaryDirectory() as folder:
        temporary = Path(folder) / f"{path.stem}.{target.name}"
        target.write(program, temporary, names=names, manifest=text)
        run = target.open(temporary, names)
        inputs = dict(zip(names.inputs, (one.detach().cpu().numpy() for one in tensors), strict=True))
        size = len(next(iter(reference.values())))
        differences = compared(run, {name: one[:size] for name, one in inputs.items()}, reference)
        alone = {name: one[:1] for name, one in reference.items()}  # the batch axis is dynamic: one example, too
        single = compared(run, {name: one[:1] for name, one in inputs.items()}, alone)
        differences = {name: max(one, single[name]) for name, one in differences.items()}
        check_parity(differences, target.name)
        seconds = latency(lambda: run({name: one[:1] for name, one in inputs.items()}))
        with temporary.open("rb") as checked, writing(path) as file:
            shutil.copyfileobj(checked, file)
    return differences, seconds


def compared(run: Runner, inputs: Mapping[str, Any], reference: Mapping[str, Tensor]) -> dict[str, float]:
    """Return the largest difference of every output to PyTorch, relative to its largest value where that is above 1."""
    found = run(inputs)
    differences = {}
    for name, expected in reference.items():
        own, other = found[name], expected.detach().cpu().numpy()
        if own.shape != other.shape:
            raise ValueError(f"the exported file gives '{name}' of shape {own.shape}, and PyTorch {other.shape}.")
        if other.dtype == np.bool_:
            differences[name] = float((own != other).mean())
            continue
        scale = max(1.0, float(np.abs(other).max()))
        gap = float(np.abs(own.astype(np.float64) - other).max()) / scale
        differences[name] = gap if np.isfinite(gap) else float("inf")
    return differences


def check_parity(differences: Mapping[str, float], target: str) -> None:
    """Raise unless a file computes what PyTorch does."""
    bad = {name: gap for name, gap in differences.items() if not gap <= TOLERANCE}
    if bad:
        name, gap = max(bad.items(), key=lambda one: one[1])
        raise ValueError(
            f"the exported file must agree with PyTorch within {TOLERANCE:.0e}, and '{name}' in .{target} differs by "
            f"{gap:.1e}; nothing was written. Export to another format, and report it with the model."
        )


def latency(call: Any) -> float:
    """Return the median seconds of several calls, after one that is not counted."""
    call()
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < RUNS and (len(times) < 3 or time.perf_counter() - begin < SECONDS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return median(times)


def _filled(one: Tensor, count: int) -> Tensor:
    return torch.cat([one] * -(-count // len(one)))[:count]
