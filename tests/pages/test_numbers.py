"""Numbers as pages write them."""

import pytest

from infoform.pages.numbers import (
    count_of,
    duration,
    listed,
    mean_error,
    mean_std,
    number,
    setting,
    signed_range,
    size,
    span,
)


def test_means_have_their_deviation_or_their_error() -> None:
    assert mean_std([1.0, 3.0], 1) == "2.0 ± 1.4"
    assert mean_std([1.0]) == "1.000"
    assert mean_error([1.0, 3.0], 1) == "2.0 ± 1.0"
    assert mean_error([1.0]) == "1.000"


@pytest.mark.parametrize(("value", "text"), [(None, "–"), (1.234, "1.23"), (12.34, "12.3"), (1234.0, "1,234")])
def test_numbers_have_about_three_digits(value: float | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(("count", "text"), [(None, "–"), (5000, "5 kB"), (5.25e6, "5.2 MB"), (5.25e9, "5.25 GB")])
def test_sizes_have_a_unit(count: float | None, text: str) -> None:
    assert size(count) == text


def test_times_are_seconds_or_minutes() -> None:
    assert (duration(119.0), duration(120.0)) == ("119 s", "2 min")


def test_ranges_name_both_ends() -> None:
    assert span([2.0, 1.0]) == "1.00 to 2.00"
    assert span([1.0, 1.0]) == "1.00"
    assert signed_range([2.0, -1.0], 1) == "-1.0 to +2.0"


def test_counts_and_lists_are_words_of_a_sentence() -> None:
    assert count_of([True, False, True]) == "2 of 3"
    assert [listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])] == ["a", "a and b", "a, b and c"]


def test_settings_are_short() -> None:
    assert setting([1e-3, "a", {"b": 2}]) == "[0.001, a, {b: 2}]"
