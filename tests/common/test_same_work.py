"""Interrupted work goes on only if it is the same work."""

from infoform.common.same_work import Difference, Identity, refusal


def test_the_same_values_are_the_same_work() -> None:
    assert Identity({"seed": 0, "range": (1, 2)}).differences({"seed": 0, "range": [1, 2]}) == []


def test_every_difference_is_named_once_in_the_order_of_the_earlier_values() -> None:
    now = Identity({"new": 1, "seed": 2, "kind": "mc"})
    assert now.differences({"kind": "mc", "seed": 0, "gone": 7}) == [
        Difference("seed", 0, 2),
        Difference("gone", 7, None),
        Difference("new", None, 1),
    ]


def test_some_names_may_differ() -> None:
    assert Identity({"seed": 1, "out": "a"}).differences({"seed": 1, "out": "b", "by": 3}, ignored=("out", "by")) == []


def test_a_missing_value_counts_as_none() -> None:
    assert Identity({"rank": None}).differences({"seed": None}) == []
    (difference,) = Identity({"seed": 3}).differences({})
    assert refusal("'x' is older", [difference], remedy="delete it") == (
        "'x' is older (seed was not given, is 3); delete it."
    )


def test_the_sentence_names_what_is_there_three_differences_and_the_remedy() -> None:
    differences = [Difference(name, 0, 1) for name in "abcde"]
    assert refusal("'x' is of another fit", differences[:1], remedy="delete it") == (
        "'x' is of another fit (a was 0, is 1); delete it."
    )
    assert refusal("'x' is of another fit", differences, remedy="delete it", describe=lambda one: one.name) == (
        "'x' is of another fit (a; b; c; and 2 more); delete it."
    )
