"""The minimum of a costly function of τ on a grid of quarter decades, found from decades."""

import math
from collections.abc import Callable

INFINITE = 1e12


def find_minimum(
    score: Callable[[float], float],
    *,
    start: int = 2,
    bounds: tuple[int, int] = (-6, 8),
    rise: float = 0.0,
    flat: float = 0.0,
) -> tuple[float, list[list[float]]]:
    """Return τ of the least score, and all that was tried as [τ, score], by τ; scores that are not finite become 1e12.

    Decades are tried from `start` (an exponent of ten) to both sides until the score is above the least by more than a
    share of `rise`, upwards also until it changes by less than a share of `flat`: the prior has then closed over the
    trained network, and there is a plateau, which downwards is crossed. Then come the half and the quarter decades
    beside the best.
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
    """As `find_minimum`, of the NLL of held-out data, which few sampled networks know to a share of .02 or so."""
    return find_minimum(score, start=start, rise=0.02, flat=0.001)
