"""A random search over pairs (N, τ) whose trials are dropped early: the worse ones after a cheap look at each.

All pairs are scored on the least data, the better part of them on more, and so on; the best of the last round wins.
The paper scores every pair on the whole validation part, as `Laplace.tune(method="random")` does. On one core that
would take days for a network of ImageNet: `tune` drops no pair early, and draws sampled networks anew for every batch,
where here each one meets all pictures, in lower precision where that is asked for (imagenet/sampling.py).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from infoform.experiments.search.line_search import INFINITE


@dataclass(frozen=True)
class Round:
    """How many pairs are scored in a round, on how many images, with how many sampled networks."""

    pairs: int
    images: int
    samples: int


def random_pairs(
    count: int, num_data: tuple[float, float], prior_precision: tuple[float, float], *, seed: int
) -> list[tuple[float, float]]:
    """Draw pairs (N, τ), log-uniform between the bounds.

    Args:
        count: how many.
        num_data: least and largest N.
        prior_precision: least and largest τ.
        seed: of the random numbers.

    Returns:
        The pairs.

    Example:
        >>> len(random_pairs(100, (1e4, 1e8), (1e-2, 1e8), seed=0))
        100
    """
    uniform = torch.rand(count, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    bounds = torch.tensor([num_data, prior_precision], dtype=torch.float64).log()  # (2, 2)
    drawn = (bounds[:, 0] + uniform * (bounds[:, 1] - bounds[:, 0])).exp()
    return [(float(count), float(tau)) for count, tau in drawn]


def halve(
    score: Callable[[float, float, Round], float], pairs: Sequence[tuple[float, float]], rounds: Sequence[Round]
) -> tuple[tuple[float, float], list[list[float]]]:
    """Find the best pair.

    Args:
        score: what is to be least, of N, τ and the round.
        pairs: those of the first round, (N, τ).
        rounds: in each, the best pairs of the round before are scored anew.

    Returns:
        The best pair of the last round, and all that was tried as [round, N, τ, score]; scores that are not finite are
        1e12.

    Raises:
        ValueError: there is no round, or there are fewer pairs than the first round scores.

    Example:
        >>> halve(lambda count, tau, _: tau, [(1.0, 3.0), (1.0, 2.0)], [Round(2, 10, 1)])[0]
        (1.0, 2.0)
    """
    if not rounds or len(pairs) < rounds[0].pairs:
        raise ValueError(f"a search needs at least one round and the pairs of its first one, got {len(pairs)} pairs.")
    tried: list[list[float]] = []
    best_first = list(pairs)
    for number, current in enumerate(rounds):
        scored = []
        for count, tau in best_first[: current.pairs]:
            value = score(count, tau, current)
            scored.append((value if math.isfinite(value) else INFINITE, count, tau))
            tried.append([float(number), count, tau, scored[-1][0]])
        best_first = [(count, tau) for _, count, tau in sorted(scored)]
    return best_first[0], tried
