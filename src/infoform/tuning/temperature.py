"""The temperature of least loss: one number, searched on a logarithmic scale."""

import math
from collections.abc import Callable

from infoform.tuning.evidence import maximise

RANGE = (1 / 16, 16.0)  # of T; networks in use want between .5 and 5
POINTS = 17  # of the first look, which has T = 1 among them
TOLERANCE = 1e-3  # of log T


def best_temperature(loss: Callable[[float], float]) -> float:
    """Return the temperature at which a loss is least.

    A grid finds the valley, and Brent's method its bottom. A loss that is not finite counts as the largest.

    Args:
        loss: Of a temperature.

    Returns:
        T, between a sixteenth and sixteen; 1 where no other is better.
    """

    def gain(log_temperature: float) -> float:
        value = loss(math.exp(log_temperature))
        return -value if math.isfinite(value) else -math.inf

    low, high = map(math.log, RANGE)
    found, value = maximise(gain, low, high, grid=POINTS, tolerance=TOLERANCE)
    return math.exp(found) if value > gain(0.0) else 1.0
