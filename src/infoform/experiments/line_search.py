"""The minimum of a costly function of τ on a grid of quarter decades, found from decades."""

import math
from collections.abc import Callable


def find_minimum(
    score: Callable[[float], float], *, start: int = 2, bounds: tuple[int, int] = (-6, 8)
) -> tuple[float, list[list[float]]]:
    """Return τ of the least score, and all that was tried as [τ, score], by τ; scores that are not finite become 1e12.

    Decades are tried outwards from `start` (an exponent of ten) as long as the score falls, then the half and the
    quarter decades beside the best: about eight evaluations, where the score has one minimum.
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
    for width in (0.5, 0.25):
        for near in (best - width, best + width):
            if bounds[0] <= near <= bounds[1]:
                value(near)
        best = min(seen, key=lambda exponent: seen[exponent])
    return 10.0**best, [[10.0**exponent, seen[exponent]] for exponent in sorted(seen)]
