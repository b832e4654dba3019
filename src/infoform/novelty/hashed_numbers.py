"""Numbers of examples in no order: a choice among them must not fall in step with data that repeat."""

import torch
from torch import Tensor

MIX, WIDTH = 0x9E3779B1, 2**32


def mixed(numbers: Tensor) -> Tensor:  # (n,)
    """Return a whole number below 2³² for each number of an example."""
    x = (numbers.to(torch.int64) + 1) * MIX % WIDTH  # so that no number stays what it is
    for _ in range(2):
        x = ((x ^ (x >> 16)) * MIX) % WIDTH
    return x ^ (x >> 15)
