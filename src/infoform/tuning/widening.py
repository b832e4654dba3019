"""A search goes on beyond an end of its range where the score still improves there.

The best τ is then outside, as far as the data can tell. At the upper end the network alone, at its own best
temperature or noise, is the limit: where it is as good as the best τ, a larger one would be no better.
"""

import math
from collections.abc import Sequence

from infoform.tuning.scorer import Profile

DECADES = 3  # by which a range is widened, once
LEAST_GAIN = 1e-3  # from one τ to the next at an end; a smaller one is not worth a search


def improving_end(profiles: Sequence[Profile], plain: Profile) -> int:
    """Return at which end of its range the score of a search still improves.

    Args:
        profiles: All trials, by ascending τ.
        plain: The network alone.

    Returns:
        -1 for the lower end and 1 for the upper, where the best trial is there and better than its neighbour by a
        thousandth and by more than a standard error of their difference on the same examples; 0 for neither, and for a
        score that is no mean.
    """
    best = min(range(len(profiles)), key=lambda place: profiles[place].score)
    if len(profiles) < 2 or best not in (0, len(profiles) - 1):
        return 0
    side = -1 if best == 0 else 1
    at_end, beside = profiles[best].terms, profiles[best - side].terms
    if at_end is None or beside is None or at_end.absolute or len(at_end.values) < 2:
        return 0
    if side == 1 and plain.score <= profiles[best].score:
        return 0
    gains = (beside.values - at_end.values).sum(1)
    error = float(gains.std()) / math.sqrt(len(gains))
    return side if float(gains.mean()) > max(error, LEAST_GAIN) else 0


def widened(precisions: Sequence[float], side: int) -> list[float]:
    """Return the τ of a grid with more of them, at the same distances, beyond an end.

    Args:
        precisions: Ascending τ at equal distances on a logarithmic scale.
        side: -1 for the lower end, 1 for the upper.
    """
    ratio = (precisions[-1] / precisions[0]) ** (1 / (len(precisions) - 1))
    steps = range(1, math.ceil(DECADES / math.log10(ratio)) + 1)
    if side < 0:
        return [precisions[0] / ratio**step for step in reversed(steps)] + list(precisions)
    return list(precisions) + [precisions[-1] * ratio**step for step in steps]
