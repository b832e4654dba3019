"""What `infoform evaluate` tells of novelty: how far it and other scores tell unknown examples from known ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ExampleNovelty:
    """How unlike the training data one example is, and the layers that find it so."""

    novelty: float  # share of known inputs that look less strange
    layer_novelty: float  # the same by the inputs of one layer alone, at its highest
    strange_to: list[str]  # the layers where it is so high, in the network's order


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
    parts: Mapping[str, ScoreApart] = field(default_factory=dict)  # by each part of novelty alone


@dataclass(frozen=True)
class NoveltyResult:
    """How many known and unknown examples are called novel, and how well scores tell them apart."""

    false_alarms: float  # share of known examples that may be called novel
    examples: int  # known ones
    novel: float  # share of them that is called novel
    unknown_sets: list[UnknownSet] = field(default_factory=list)
