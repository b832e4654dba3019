"""The minimum of a costly function of τ on a grid of quarter decades, found from decades: for other libraries only.

Our own posteriors are tuned by `Laplace.tune`, which cannot tune those of another library. Their τ are searched here on
the grid that ours have.
"""

import math
from collections.abc import Callable

INFINITE = 1e12  # in place of a score that is not finite: JSON has no infinity


def find_minimum(
    score: Callable[[float], float],
    *,
    start: int = 2,
    bounds: tuple[int, int] = (-6, 8),
    rise: float = 0.0,
    flat: float = 0.0,
) -> tuple[float, list[list[float]]]:
    """Find τ of the least score.

    Decades are tried from the start to both sides until the score rises. Upwards the search also ends where the score
    does not change any more: the prior has then closed over the trained network. Downwards such a plateau is crossed.
    Then come the half and the quarter decades beside the best.

    Args:
        score: what is to be least, of a τ.
        start: exponent of ten of the first τ.
        bounds: exponents of the least and the largest τ.
        rise: share of the least score by which another must be above it to count as risen.
        flat: share of a score by which the next must be below it to count as changed.

    Returns:
        The best τ, and all that was tried as [τ, score], by τ; scores that are not finite are 1e12.

    Example:
        >>> find_minimum(lambda tau: abs(tau - 100.0))[0]
        100.0
    """
    seen: dict[float, float] = {}

    def value(exponent: float) -> float:
        if exponent not in seen:
            found = score(10.0**exponent)
            seen[exponent] = found if math.isfinite(found) else INFINITE
        return seen[exponent]

    value(start)
    for step in (1, -1):
        near = start
        while bounds[0] <= near + step <= bounds[1]:
            least = min(seen.values())
            before, near = near, near + step
            if value(near) > least + rise * abs(least):
                break
            if step > 0 and INFINITE > value(near) > (1 - flat) * value(before):
                break
    best = min(seen, key=lambda exponent: seen[exponent])
    for width in (0.5, 0.25):
        for beside in (best - width, best + width):
            if bounds[0] <= beside <= bounds[1]:
                value(beside)
        best = min(seen, key=lambda exponent: seen[exponent])
    return 10.0**best, [[10.0**exponent, seen[exponent]] for exponent in sorted(seen)]


def find_least_nll(score: Callable[[float], float], *, start: int = 2) -> tuple[float, list[list[float]]]:
    """Find τ of the least NLL of held-out data, which few sampled networks know to a share of .02 or so.

    Args:
        score: the NLL, of a τ.
        start: exponent of ten of the first τ.

    Returns:
        As `find_minimum`.

    Example:
        >>> find_least_nll(lambda tau: 1 + abs(tau - 100.0))[0]
        100.0
    """
    return find_minimum(score, start=start, rise=0.02, flat=0.001)
