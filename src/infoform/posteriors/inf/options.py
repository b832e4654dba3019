"""What the options of INF may be, and how much of a basis a fit must measure for them."""

import math
from collections.abc import Mapping

import torch

from infoform.curvature.curvature import Curvature
from infoform.curvature.eigenbasis import SUPPORTS, Eigenbasis
from infoform.curvature.request import CORE_LIMIT

CORRECTIONS = ("scaled", "additive")
CORES = ("full", "diagonal")


def enough_pairs(rank: int | float | Mapping[str, int]) -> int:
    """Return how many pairs to measure together: some more than are kept, since the choice comes first."""
    if isinstance(rank, float):
        return CORE_LIMIT
    most = max(rank.values()) if isinstance(rank, Mapping) else rank
    return min(CORE_LIMIT, most + most // 4)


def enough_columns(rank: int | float | Mapping[str, int], basis: str) -> int | None:
    """Return how many leading columns of either side hold the largest pairs; None for all.

    Pairs (i, j) of large Λ lie where both i and j are small: 100 of them use some 30 columns of a LeNet's layers.
    Of the paper's basis, whose order is not that of Λ, and for a share of all pairs, all columns are kept.
    """
    if basis != "gradient" or isinstance(rank, float):
        return None
    most = max(rank.values()) if isinstance(rank, Mapping) else rank
    return max(64, 4 * math.isqrt(most) + 4)


def check_options(
    curvature: Curvature,
    eigen: Eigenbasis,
    rank: int,
    support: str,
    correction: str,
    core: str,
    storage: torch.dtype | None,
    clip: bool,
) -> None:
    """Say which option has a value that it cannot have."""
    if support not in SUPPORTS:
        raise ValueError(f"support must be one of {', '.join(map(repr, SUPPORTS))}, got {support!r}.")
    if correction not in CORRECTIONS:
        raise ValueError(f"correction must be one of {', '.join(map(repr, CORRECTIONS))}, got {correction!r}.")
    if storage == torch.uint8 and not clip:
        raise ValueError("storage='uint8' keeps a logarithm, which a negative D has not; leave clip=False out.")
    if core not in CORES:
        raise ValueError(f"core must be one of {', '.join(map(repr, CORES))}, got {core!r}.")
    size = eigen.eigenvalues.numel()
    if not 1 <= rank <= size:
        of = "G * A" if size == curvature.shape[0] * curvature.shape[1] else "the pairs of the truncated basis"
        raise ValueError(f"rank must be between 1 and {size} (= {of}) for layer '{curvature.name}', got {rank}.")
