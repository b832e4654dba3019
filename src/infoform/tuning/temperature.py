"""The temperature, or the factor of a noise, of least loss: one number, searched on a logarithmic scale."""

import math
from collections.abc import Callable

from infoform.tuning.evidence import maximise

RANGE = (1 / 16, 16.0)  # of T; networks in use want between .5 and 5
POINTS = 17  # of the first look, which has T = 1 among them
TOLERANCE = 1e-3  # of log T
ROUGH_POINTS, ROUGH_TOLERANCE = 9, 0.1
NEAR = math.log(1.4)  # half of the range that is searched around a good guess
NEAR_TOLERANCE = 1e-2  # of log T there: the loss is flat at its least


def best_temperature(loss: Callable[[float], float], *, near: float | None = None, roughly: bool = False) -> float:
    """Return the temperature at which a loss is least.

    A grid finds the valley, and Brent's method its bottom. A loss that is not finite counts as the largest.

    Args:
        loss: Of a temperature.
        near: A good guess, such as the best of a part of the data; the whole range is searched where it misleads.
        roughly: Whether a value within some per cent will do, from which to search later.

    Returns:
        T, between a sixteenth and sixteen; 1 where no other is better.
    """

    def gain(log_temperature: float) -> float:
        value = loss(math.exp(log_temperature))
        return -value if math.isfinite(value) else -math.inf

    low, high = map(math.log, RANGE)
    if near is not None:
        centre = math.log(near)
        left, right = max(low, centre - NEAR), min(high, centre + NEAR)
        found, _ = maximise(gain, left, right, grid=3, tolerance=NEAR_TOLERANCE)
        at_end = (found < left + NEAR_TOLERANCE and left > low) or (found > right - NEAR_TOLERANCE and right < high)
        if not at_end:
            return math.exp(found)
    grid, tolerance = (ROUGH_POINTS, ROUGH_TOLERANCE) if roughly else (POINTS, TOLERANCE)
    found, value = maximise(gain, low, high, grid=grid, tolerance=tolerance)
    return math.exp(found) if value > gain(0.0) else 1.0
