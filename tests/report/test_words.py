"""Numbers are written as people read them."""

import pytest

from infoform.report import words


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (words.percent(0.9124), "91.2\u00a0%"),
        (words.percent(None), "–"),
        (words.number(1234567), "1,234,567"),
        (words.number(0.00012345), "0.0001234"),
        (words.number(None), "–"),
        (words.number({"a": 1}), "{'a': 1}"),
        (words.score("accuracy", 0.5), "50.0\u00a0%"),
        (words.score("nll", 0.5), "0.5000"),
        (words.counted(1, "example"), "1\u00a0example"),
        (words.counted(2000, "example"), "2,000\u00a0examples"),
        (words.listed(["a"]), "a"),
        (words.listed(["a", "b", "c"]), "a, b and c"),
        (words.precision({"0": 1.0, "2": 2.5}), "0: 1, 2: 2.5"),
        (words.sure_sentence(0.9, 0, None), "No prediction was given with 90\u00a0% confidence or more."),
        (
            words.sure_sentence(0.9, 500, 0.912),
            "Of 500\u00a0predictions given with 90\u00a0% confidence or more, 91.2\u00a0% were right.",
        ),
    ],
)
def test_words(written: str, expected: str) -> None:
    assert written == expected
