"""The temperature, or the factor of a noise, of least loss: one number, searched on a logarithmic scale."""

import math
from collections.abc import Callable

from infoform.tuning.evidence import maximise

RANGE = (1 / 16, 16.0)  # of T; networks in use want between .5 and 5
POINTS = 17  # of the first look, which has T = 1 among them
TOLERANCE = 1e-3  # of log T
ROUGH_POINTS, ROUGH_TOLERANCE = 9, 0.1
NEAR = math.log(1.2)  # from a good guess to the places on both sides of it
MOVES = 4  # of the guess, before the whole range is searched


def best_temperature(
    loss: Callable[[float], float], *, near: float | None = None, roughly: bool = False, least: float = RANGE[0]
) -> float:
    """Return the temperature at which a loss is least.

    A grid finds the valley, and Brent's method its bottom; around a good guess two parabolas do. A loss that is not
    finite counts as the largest.

    Args:
        loss: Of a temperature.
        near: A good guess, such as the best of a part of the data; the whole range is searched where it misleads.
        roughly: Whether a value within some per cent will do, from which to search later.
        least: The smallest that is looked at, at most 1.

    Returns:
        T, between a sixteenth and sixteen; 1 where no other is better.
    """

    def gain(log_temperature: float) -> float:
        value = loss(math.exp(log_temperature))
        return -value if math.isfinite(value) else -math.inf

    low, high = math.log(max(least, RANGE[0])), math.log(RANGE[1])
    if near is not None:
        found_near = _bottom(gain, max(math.log(near), low), low, high)
        if found_near is not None:
            return math.exp(found_near)
    grid, tolerance = (ROUGH_POINTS, ROUGH_TOLERANCE) if roughly else (POINTS, TOLERANCE)
    found, value = maximise(gain, low, high, grid=grid, tolerance=tolerance)
    return math.exp(found) if value > gain(0.0) else 1.0


def _bottom(gain: Callable[[float], float], guess: float, low: float, high: float) -> float | None:
    """Return the place of the largest gain near a guess, by two parabolas; None if it is not near."""
    known: dict[float, float] = {}

    def at(place: float) -> float:
        if place not in known:
            known[place] = gain(place)
        return known[place]

    guess = min(max(guess, low + NEAR), high - NEAR)
    for _ in range(MOVES):
        left, right = guess - NEAR, guess + NEAR
        if not math.isfinite(at(guess) + at(left) + at(right)):
            return None
        if at(guess) >= max(at(left), at(right)):
            at(_vertex([(place, at(place)) for place in (left, guess, right)]))
            best = max(known, key=known.__getitem__)
            near = sorted(sorted(known, key=lambda place: abs(place - best))[:3])
            return _vertex([(place, known[place]) for place in near]) if near[0] < best < near[2] else best
        if at(left) > at(right) and left - NEAR < low:  # next to the end, or at it
            return _beside_end(at, low, left, guess)
        guess = left if at(left) > at(right) else right
        if guess + NEAR > high:
            return None
    return None


def _beside_end(at: Callable[[float], float], low: float, left: float, right: float) -> float | None:
    """Return the place of the largest gain between the lower end and the second of two places near it."""
    if left > low and at(low) < at(left):
        return _vertex([(place, at(place)) for place in (low, left, right)])
    inside = low + NEAR / 8
    if at(low) >= at(inside):
        return low
    return _vertex([(place, at(place)) for place in (low, inside, max(left, low + NEAR / 2))])


def _vertex(points: list[tuple[float, float]]) -> float:
    """Return where the parabola through three points has its top, or the middle one where it is flat."""
    (a, fa), (b, fb), (c, fc) = points
    p, q = (b - a) * (fb - fc), (b - c) * (fb - fa)
    bend = p - q
    return b if bend == 0 else b - ((b - a) * p - (b - c) * q) / (2 * bend)
