"""The score that a share of fresh examples stays below, for any number n of calibration examples.

    threshold(level) = the ⌈(n + 1) level⌉-th smallest of n scores                        Vovk et al. 2005

A fresh example that is exchangeable with the n others has a score of at most the threshold with probability `level` or
more, and with less than level + 1 / (n + 1) where no two scores are equal.
"""

import math

import torch
from torch import Tensor

ROUNDING = 1e-9  # (n + 1) level may be a whole number but for rounding


def check_level(level: float) -> None:
    """Raise a ValueError unless the level is a share between 0 and 1."""
    if not 0 < level < 1:
        raise ValueError(f"a level must be a share of answers between 0 and 1, got {level}.")


def examples_needed(level: float) -> int:
    """Return how many calibration examples a level needs at least."""
    return max(1, math.ceil(level / (1 - level) - ROUNDING))


def threshold(scores: Tensor, level: float, *, what: str = "") -> Tensor:  # (n, ...) -> (...)
    """Return the threshold of each column of scores.

    Args:
        scores: of n calibration examples, in the first axis.
        level: share of fresh examples that are to stay below, between 0 and 1.
        what: which examples these are, for a message: " of class 3".

    Raises:
        ValueError: If there are too few examples for the level, or it is none.
    """
    check_level(level)
    count = len(scores)
    rank = math.ceil((count + 1) * level - ROUNDING)
    if rank > count:
        raise ValueError(
            f"a level of {level:g} needs {examples_needed(level)} or more calibration examples{what}, got {count}; "
            "calibrate on more data, or ask for a lower level."
        )
    return torch.sort(scores, dim=0).values[rank - 1]
