"""The score that a share of fresh examples stays below, for any number n of calibration examples.

    threshold(level) = the ⌈(n + 1) level⌉-th smallest of n scores                        Vovk et al. 2005

A fresh example that is exchangeable with the n others has a score of at most the threshold with probability `level` or
more, and with less than level + 1 / (n + 1) where no two scores are equal.

Where an example has several scores, as of its tokens or pixels, these are not exchangeable with each other. Examples
are: with k examples of n_1, ..., n_k scores the threshold is the smallest t with

    Σ_i 1/n_i #{scores of example i ≤ t} ≥ (k + 1) level             Dunn et al. 2022; Lee et al. 2023

and a position of a fresh example, drawn at random, has a score of at most t with probability `level` or more.
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


def threshold(
    scores: Tensor, level: float, *, what: str = "", examples: Tensor | None = None
) -> Tensor:  # (n, ...), (n,) -> (...)
    """Return the threshold of each column of scores.

    Args:
        scores: of n calibration examples, in the first axis.
        level: share of fresh examples that are to stay below, between 0 and 1.
        what: which examples these are, for a message: " of class 3".
        examples: the example of each score, where some have several.

    Raises:
        ValueError: If there are too few examples for the level, or it is none.
    """
    check_level(level)
    count = len(scores)
    if examples is not None and count:
        _, places, sizes = examples.unique(return_inverse=True, return_counts=True)
        count = len(sizes)
    rank = math.ceil((count + 1) * level - ROUNDING)
    if rank > count:
        raise ValueError(
            f"a level of {level:g} needs {examples_needed(level)} or more calibration examples{what}, got {count}; "
            "calibrate on more data, or ask for a lower level."
        )
    ordered, order = torch.sort(scores, dim=0)
    if examples is None:
        return ordered[rank - 1]
    reached = (1 / sizes.double())[places][order].cumsum(0)  # (n, ...)
    first = (reached < (count + 1) * level - ROUNDING * count).sum(0, keepdim=True).clamp_max(len(scores) - 1)
    return ordered.gather(0, first).squeeze(0)
