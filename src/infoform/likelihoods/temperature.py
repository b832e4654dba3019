"""The temperature of a likelihood with logits: p = softmax(f / T).

It is one more hyperparameter of a posterior beside τ. Above 1 it makes answers less sure, below 1 surer.
"""

import math

from infoform.likelihoods.base import Likelihood


def check_temperature(value: float, likelihood: Likelihood) -> float:
    """Return the temperature as it is kept.

    Args:
        value: T.
        likelihood: What the logits are for.

    Returns:
        T, as a float.

    Raises:
        ValueError: If T is not a positive number, or is not 1 where outputs are no logits.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"temperature must be a positive number, got {value!r}; 1 leaves the logits as they are.")
    if value != 1 and not likelihood.has_logits:
        raise ValueError(
            f"temperature divides logits, and the outputs of the {likelihood.name} likelihood are none, got {value}; "
            "leave it at 1."
        )
    return float(value)
