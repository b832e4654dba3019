"""From a graph in PyTorch to a program of plain operators, which every target starts from."""

import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

OPERATOR = re.compile(r"(?:torch\.ops\.|torch\._ops\.)?\b(aten|torchvision|prims|quantized)(?:\.|::)(\w+)")
CHATTY = (  # names of loggers
    "torch.__trace", "torch.onnx", "torch.export", "torch._export", "onnxscript", "onnx_ir", "executorch",
)  # fmt: skip


def trace(graph: nn.Module, tensors: tuple[Tensor, ...], *, max_batch: int | None) -> ExportedProgram:
    """Return the graph as a program with a dynamic batch axis.

    Args:
        graph: a module that takes these tensors; it has been run before, so that what it shares is computed.
        tensors: some examples of every input.
        max_batch: the largest batch, for targets that plan their memory; None for any.

    Raises:
        ValueError: if the model cannot be traced; the sentence names the operator, or where it is.
    """
    batch = Dim("batch", min=1, max=max_batch)
    shapes = {"tensors": tuple({0: batch} for _ in tensors)}
    with torch.no_grad(), quiet(), explained("torch.export"):
        return torch.export.export(graph, tensors, dynamic_shapes=shapes, strict=False)


@contextmanager
def explained(target: str) -> Iterator[None]:
    """Turn whatever a tracer or converter raises in the block into one sentence that names the operator."""
    try:
        yield
    except (ImportError, MemoryError):
        raise
    except Exception as error:
        raise ValueError(
            f"the model cannot be exported: {target} fails at {culprit(error)}; replace that part of the model by "
            "tensor operations, or export another kind or format."
        ) from error


def culprit(error: BaseException) -> str:
    """Return what a failed export names as its cause: an operator, or the first line of the message."""
    seen: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and one not in seen:
        seen.append(one)
        one = one.__cause__ or one.__context__
    for each in reversed(seen):  # the first cause knows best
        found = OPERATOR.search(str(each))
        if found is not None:
            return f"the operator {found.group(1)}.{found.group(2)}"
    for each in seen:
        if "data-dependent" in str(each) or "GuardOnDataDependent" in type(each).__name__:
            return f"a branch that depends on the values of a tensor{_where(each)}"
        if "Constraints violated" in str(each) or "specialized" in str(each):
            return "an operation that fixes the size of the batch, such as a loop over its examples"
    line = next((line for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {line.strip()[:200]}{_where(error)}"


@contextmanager
def quiet() -> Iterator[None]:
    """Hide what exporters say of themselves: deprecations of their own code, advice on optional packages."""
    loggers = [logging.getLogger(name) for name in CHATTY]
    levels = [one.level for one in loggers]
    try:
        for one in loggers:
            one.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for one, level in zip(loggers, levels, strict=True):
            one.setLevel(level)


def _where(error: BaseException) -> str:
    """Return the user's line of code that an error names, if it names one."""
    lines = re.findall(r'File "([^"]+)", line (\d+), in forward', str(error))
    own = [(path, number) for path, number in lines if "/torch/" not in path and "/infoform/" not in path]
    return f" ({own[-1][0].rsplit('/', 1)[-1]}, line {own[-1][1]})" if own else ""
