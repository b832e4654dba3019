"""Targets of positions that do not count: −100, as in torch's cross_entropy, or NaN in a floating-point type."""

import math

import torch
from torch import Tensor

IGNORED = -100


def counting(targets: Tensor, places: int) -> Tensor:  # (N, *P) or (N, *P, K) -> (N, *P)
    """Return which positions have a target; `places` axes are those of examples and positions."""
    if targets.is_floating_point():
        none = targets.isnan()
    elif targets.dtype == torch.bool:
        none = torch.zeros_like(targets)
    else:
        none = targets == IGNORED
    return ~(none.flatten(places).all(-1) if targets.dim() > places else none)


def ignored_value(targets: Tensor) -> float:
    """Return what marks a position of such targets that does not count."""
    return math.nan if targets.is_floating_point() else IGNORED
