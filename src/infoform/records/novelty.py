"""How many examples are unlike the training data, as `infoform evaluate` and `infoform predict` tell it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class NovelExamples:
    """The examples that are called novel.

    Args:
        false_alarms: share of known examples that may be called novel; it sets the threshold.
        novel: examples that are called so.
        share: the same as a share of all.
        strangest_layers: how many of them each layer finds strangest, the largest number first.
    """

    false_alarms: float
    novel: int
    share: float
    strangest_layers: list[tuple[str, int]]
