"""The examples worth looking at, as `infoform evaluate` and `infoform predict` tell them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from infoform.common.json_values import FLAT, LEFT_OUT


@dataclass(frozen=True)
class ClassAnswer:
    """What was said about the class of one example."""

    confidence: float
    top: list[tuple[str, float]]  # the most probable classes and their probabilities


@dataclass(frozen=True)
class NumberAnswer:
    """What was said about the numbers to predict for one example, one of each for each output."""

    mean: list[float]
    std: list[float]


@dataclass(frozen=True)
class TableRow:
    """What one example looks like: numbers by the names of their columns."""

    inputs: Mapping[str, float]
    left_out: int  # columns that are not shown


@dataclass(frozen=True)
class ShownExample:
    """One example: what was predicted, the truth where it is known, and what the example looks like."""

    index: int
    example: str  # its name
    entropy: float
    mutual_information: float
    classes: ClassAnswer | None = field(default=None, metadata=FLAT)
    numbers: NumberAnswer | None = field(default=None, metadata=FLAT)
    target: str | list[float] | None = field(default=None, metadata=LEFT_OUT)
    right: bool | None = field(default=None, metadata=LEFT_OUT)
    png: str | None = field(default=None, metadata=LEFT_OUT)  # base64
    row: TableRow | None = field(default=None, metadata=FLAT)
    novelty: float | None = field(default=None, metadata=LEFT_OUT)  # where the posterior can tell it
    novel: bool | None = field(default=None, metadata=LEFT_OUT)  # at 5 % of false alarms
    strangest_layer: str | None = field(default=None, metadata=LEFT_OUT)


@dataclass(frozen=True)
class ChosenExamples:
    """The examples worth looking at, the most telling first."""

    least_certain: list[ShownExample]
    most_certain: list[ShownExample]
    confidently_wrong: list[ShownExample] | None = field(
        default=None, metadata=LEFT_OUT
    )  # of classes, where the truths are known
    farthest_off: list[ShownExample] | None = field(
        default=None, metadata=LEFT_OUT
    )  # of numbers, where the truths are known
    strangest: list[ShownExample] | None = field(default=None, metadata=LEFT_OUT)  # where the posterior can tell it
