"""A kind of data for the command, from outside the package: lines of numbers, the target last."""

from pathlib import Path

import torch

from infoform.cli.sources.base import Data, Reading, tensor_loader


def takes(spec: str) -> bool:
    return spec.endswith(".lines")


def read(spec: str, reading: Reading) -> Data:
    rows = torch.tensor([[float(word) for word in line.split()] for line in Path(spec).read_text().splitlines()])
    rows = rows.to(reading.dtype)
    return Data(tensor_loader(rows[:, :-1], rows[:, -1:], reading.batch_size), len(rows))
