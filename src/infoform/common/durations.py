"""Seconds as people read them."""

LONGEST = 120  # seconds; what takes longer is told in minutes


def show_duration(seconds: float, *, digits: int = 0) -> str:
    """Return a duration in seconds, or in minutes where it is long.

    Args:
        seconds: how long it took.
        digits: how many decimal places are shown.

    Example:
        >>> show_duration(7.25, digits=1), show_duration(600)
        ('7.2 s', '10 min')
    """
    return f"{seconds:.{digits}f} s" if seconds < LONGEST else f"{seconds / 60:.{digits}f} min"
