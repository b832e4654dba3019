"""τ, one number or one for each layer: checked once, looked up by layer."""

import math
from collections.abc import Mapping


def check_precision(precision: float | Mapping[str, float]) -> float | dict[str, float]:
    """Return τ as it is kept, or raise a ValueError."""
    values = precision if isinstance(precision, Mapping) else {"": precision}
    for value in values.values():
        if not 0 <= value < math.inf:
            raise ValueError(f"prior_precision must be finite and not negative, got {value}.")
    return {k: float(v) for k, v in precision.items()} if isinstance(precision, Mapping) else float(precision)


def layer_precision(precision: float | dict[str, float], name: str) -> float:
    """Return the τ of one layer."""
    if not isinstance(precision, dict):
        return precision
    if name not in precision:
        raise ValueError(
            f"prior_precision must have a value for each layer, got none for '{name}'; add it or give one number."
        )
    return precision[name]
