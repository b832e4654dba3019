"""Arrays in an .npz: inputs and, by `--target` or the usual names, targets; the first axis is the examples."""

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from infoform.cli.mistakes import Mistake
from infoform.cli.sources.base import Data, Reading, class_indices, tensor_loader
from infoform.cli.sources.standardise import channels_first, standardise
from infoform.records.fit import DataFacts

INPUTS = ("x", "X", "inputs", "images", "features", "data")
TARGETS = ("y", "Y", "targets", "target", "labels", "label")
OPTIONS = frozenset({"target", "inputs", "classes", "divide_by", "channels", "image_mean", "image_std", "batch_size"})


def takes(spec: str) -> bool:
    return spec.lower().endswith(".npz")


def read(spec: str, reading: Reading) -> Data:
    arrays = _names(spec)
    options = reading.options
    target = options.target or next((name for name in TARGETS if name in arrays), None)
    name = options.inputs or next((name for name in INPUTS if name in arrays), None)
    for option, array in (("--inputs", options.inputs), ("--target", options.target if reading.labelled else None)):
        if array is not None and array not in arrays:
            raise Mistake(f"'{spec}' has no array '{array}', which {option} names; it has {', '.join(arrays)}.")
    if name is None:
        raise Mistake(f"which array of '{spec}' has the inputs? Give --inputs; it has {', '.join(arrays)}.")
    if target not in arrays and reading.labelled:
        raise Mistake(f"which array of '{spec}' has the targets? Give --target; it has {', '.join(arrays)}.")
    inputs = _tensor(_array(spec, name), f"array '{name}' of '{spec}'")
    inputs = standardise(channels_first(inputs, options.channels, f"array '{name}' of '{spec}'"), options)
    if inputs.is_floating_point():
        inputs = inputs.to(reading.dtype)
        _check_finite(inputs, f"array '{name}' of '{spec}'")
    labels, classes = None, reading.classes
    if target is not None and target in arrays:
        labels, classes = _targets(_array(spec, target), f"array '{target}' of '{spec}'", reading)
        if len(labels) != len(inputs):
            raise Mistake(
                f"inputs and targets must be as many, got {len(inputs)} in '{name}' and {len(labels)} in '{target}'."
            )
    return Data(tensor_loader(inputs, labels, reading.batch_size), len(inputs), None, DataFacts(classes=classes))


def _targets(array: Any, where: str, reading: Reading) -> tuple[Tensor, list[str] | None]:
    """Return the targets as the likelihood takes them, and the names of the classes where they are known."""
    if array.dtype.kind == "U":
        if not reading.likelihood.one_of_many:
            raise Mistake(f"{where} must hold numbers for {reading.likelihood.name}, got text.")
        labels = [str(value) for value in array]
        classes = reading.classes or sorted(set(labels))
        return class_indices(labels, classes, where), classes
    targets = _tensor(array, where)
    if targets.is_floating_point() and targets.dim() < 3:  # of positions NaN says that one does not count
        _check_finite(targets, where)
    return reading.likelihood.read_targets(targets, reading.dtype), reading.classes


def _tensor(array: Any, where: str) -> Tensor:
    if array.dtype.kind not in "iufb" or array.ndim == 0 or len(array) == 0:
        raise Mistake(
            f"{where} must hold numbers, one row an example, got {array.dtype} of shape {array.shape}; save it again."
        )
    return torch.from_numpy(np.ascontiguousarray(array))


def _check_finite(values: Tensor, where: str) -> None:
    bad = ~values.isfinite().reshape(len(values), -1).all(1)
    if bool(bad.any()):
        raise Mistake(
            f"{where} must be finite, and {int(bad.sum())} of {len(values)} examples are not "
            f"(the first is number {int(bad.nonzero()[0])}); remove or repair them."
        )


def _names(spec: str) -> list[str]:
    if not Path(spec).is_file():
        raise Mistake(f"there is no file '{spec}' to read data from; check the path.")
    with _opened(spec) as content:
        return list(content.files)


def _array(spec: str, name: str) -> Any:
    """Return one array; the others are not unpacked, as a small file may hold an array of many gigabytes."""
    with _opened(spec) as content:
        return content[name]


@contextmanager
def _opened(spec: str) -> Iterator[Any]:
    try:
        with Path(spec).open("rb") as file, np.load(file, allow_pickle=False) as content:
            yield content
    except (
        ValueError,
        OSError,
        EOFError,
        zipfile.BadZipFile,
        AttributeError,
        TypeError,
    ) as error:  # one array: no `with`
        raise Mistake(f"'{spec}' cannot be read as plain arrays ({error}); save it by numpy.savez.") from error
