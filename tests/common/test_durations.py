"""Seconds are written as people read them."""

import pytest

from infoform.common.durations import show_duration


@pytest.mark.parametrize(
    ("seconds", "digits", "written"),
    [(0.04, 1, "0.0 s"), (7.26, 1, "7.3 s"), (119.6, 0, "120 s"), (120, 0, "2 min"), (150, 1, "2.5 min")],
)
def test_durations(seconds: float, digits: int, written: str) -> None:
    assert show_duration(seconds, digits=digits) == written
