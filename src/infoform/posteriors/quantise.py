"""How the diagonal of the information is stored: as numbers of a dtype, or as one byte a weight.

A byte is a step of a logarithmic scale (logscale.py), here the nearest one: over 32 octaves a value is off by 4.5 % at
most, over fewer by less. What is computed from it later is exact for what is stored.
"""

import torch
from torch import Tensor

from infoform.posteriors import log_bytes as logscale


def round_to(values: Tensor, storage: torch.dtype | None) -> tuple[Tensor, Tensor | None]:
    """Return what is stored of numbers that are not negative, and the scale of its codes if it is bytes."""
    if storage == torch.uint8:
        return logscale.encode(values, nearest=True)
    return values.to(storage or values.dtype), None


def read_back(stored: Tensor, steps: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Return the numbers that are stored."""
    return stored.to(dtype) if steps is None else logscale.decode(stored, steps, dtype)


def vector_dtype(storage: torch.dtype | None, dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which eigenvectors are stored beside it."""
    return torch.bfloat16 if storage == torch.uint8 else storage or dtype
