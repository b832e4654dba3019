"""How far scores tell each set of unknown examples from known ones, as `infoform evaluate` tells it for a report."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class RocPoints:
    """For rising numbers of alarms: the share of known examples that are called unknown, and of unknown ones."""

    false_alarms: list[float]
    found: list[float]


@dataclass(frozen=True)
class ScoreApart:
    """How far one score tells unknown examples from known ones; both are counted between the same edges."""

    auroc: float
    aupr: float
    fpr95: float
    edges: list[float]
    known: list[int]
    unknown: list[int]
    roc: RocPoints


@dataclass(frozen=True)
class UnknownSet:
    """One set of unknown examples."""

    name: str
    examples: int
    novel: float  # share that is called novel
    scores: Mapping[str, ScoreApart]  # by "novelty", "entropy" and "mutual_information"
