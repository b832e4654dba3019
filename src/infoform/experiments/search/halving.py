"""A random search over pairs (N, τ) whose trials are dropped early: the worse ones after a cheap look at each.

All pairs are scored on the least data, the better part of them on more, and so on; the best of the last round wins.
The paper scores every pair on the whole validation part.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Round:
    """How many pairs are scored in a round, on how many images, with how many sampled networks."""

    pairs: int
    images: int
    samples: int


def random_pairs(
    count: int, num_data: tuple[float, float], prior_precision: tuple[float, float], *, seed: int
) -> list[tuple[float, float]]:
    """Draw pairs (N, τ), log-uniform between the bounds."""
    uniform = torch.rand(count, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    bounds = torch.tensor([num_data, prior_precision], dtype=torch.float64).log()  # (2, 2)
    drawn = (bounds[:, 0] + uniform * (bounds[:, 1] - bounds[:, 0])).exp()
    return [(float(count), float(tau)) for count, tau in drawn]


def halve(
    score: Callable[[float, float, Round], float], pairs: Sequence[tuple[float, float]], rounds: Sequence[Round]
) -> tuple[tuple[float, float], list[list[float]]]:
    """Return the best pair, and all that was tried as [round, N, τ, score]; scores that are not finite become 1e12."""
    if not rounds or len(pairs) < rounds[0].pairs:
        raise ValueError(f"a search needs at least one round and the pairs of its first one, got {len(pairs)} pairs.")
    tried: list[list[float]] = []
    left = list(pairs)
    for number, one in enumerate(rounds):
        scored = []
        for count, tau in left[: one.pairs]:
            found = score(count, tau, one)
            scored.append((found if math.isfinite(found) else 1e12, count, tau))
            tried.append([float(number), count, tau, scored[-1][0]])
        left = [(count, tau) for _, count, tau in sorted(scored)]
    return left[0], tried
