"""Ranks fill a budget of bytes, and never fall below the least."""

import pytest

from infoform.novelty.ranks import HEAD_RANK, LEAST_RANK, MANY_CLASSES, choose_ranks
from infoform.novelty.sparse_gaussian import RANK

COLUMNS = {"a": 32, "b": 128, "c": 64}


def test_a_large_budget_holds_all_and_a_small_one_the_least() -> None:
    large = choose_ranks(COLUMNS, head_columns=64, classes=10, budget=10**9)
    assert (large.layers, large.head, large.classes) == (RANK, HEAD_RANK, 9)
    small = choose_ranks(COLUMNS, head_columns=64, classes=10, budget=0)
    assert (small.layers, small.head, small.classes) == (LEAST_RANK,) * 3


@pytest.mark.parametrize("classes", [1, 10, 1000])
def test_more_bytes_never_hold_less(classes: int) -> None:
    found = [choose_ranks(COLUMNS, head_columns=64, classes=classes, budget=size) for size in range(0, 200_000, 5000)]
    for name in ("head", "classes"):
        values = [getattr(one, name) for one in found]
        assert values == sorted(values)


def test_many_classes_get_more_directions() -> None:
    few, many = (
        choose_ranks(COLUMNS, head_columns=512, classes=c, budget=60_000) for c in (MANY_CLASSES, MANY_CLASSES + 1)
    )
    assert many.classes > 1.5 * few.classes
