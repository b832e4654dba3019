"""Checks of values that users give."""

import math
from collections.abc import Sequence


def check_choice(name: str, value: object, choices: Sequence[object]) -> None:
    """Raise a ValueError unless the value is one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}.")


def check_whole(name: str, value: object, *, least: int = 1) -> None:
    """Raise a ValueError unless the value is a whole number of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}.")


def check_positive(name: str, value: float) -> None:
    """Raise a ValueError unless the value is above 0 and finite."""
    if not 0 < value < math.inf:
        raise ValueError(f"{name} must be positive and finite, got {value}.")
