"""The minimum of a costly function of τ on a grid of half decades, found from decades."""

import math
from collections.abc import Callable


def find_minimum(
    score: Callable[[float], float], *, start: int = 2, bounds: tuple[int, int] = (-6, 8)
) -> tuple[float, list[list[float]]]:
    """Return τ of the least score, and all that was tried as [τ, score], by τ; scores that are not finite become 1e12.

    Decades are tried outwards from `start` (an exponent of ten) as long as the score falls, then the half decades
    beside the best: about six evaluations, where the score has one minimum.
    """
    seen: dict[float, float] = {}

    def value(exponent: float) -> float:
        if exponent not in seen:
            found = score(10.0**exponent)
            seen[exponent] = found if math.isfinite(found) else 1e12
        return seen[exponent]

    best = float(start)
    value(best)
    for step in (1, -1):
        while bounds[0] <= best + step <= bounds[1] and value(best + step) <= value(best):
            best += step
    for half in (best - 0.5, best + 0.5):
        if bounds[0] <= half <= bounds[1]:
            value(half)
    least = min(seen, key=lambda exponent: seen[exponent])
    return 10.0**least, [[10.0**exponent, seen[exponent]] for exponent in sorted(seen)]
