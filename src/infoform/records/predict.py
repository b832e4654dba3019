"""`predict.json`: where the predictions are, and a summary of them."""

from dataclasses import dataclass, field

from infoform.common.json_values import FLAT, LEFT_OUT
from infoform.records.evaluate import Histogram
from infoform.records.examples import ChosenExamples
from infoform.records.novelty import NovelExamples


@dataclass(frozen=True)
class PredictedClasses:
    """How often each class is predicted, and with which confidence."""

    predicted_classes: list[tuple[str, int]]
    confidence_histogram: Histogram


@dataclass(frozen=True)
class PredictedNumbers:
    """How wide predictions of numbers are: mean standard deviations, one for each output."""

    mean_std: list[float]
    mean_epistemic_std: list[float]


@dataclass(frozen=True)
class PredictResult:
    """What `infoform predict` found; of `classes` and `numbers` one is there."""

    examples: int
    predictions: str  # the file
    columns: list[str]
    mean_entropy: float | None
    mean_confidence: float | None
    classes: PredictedClasses | None = field(default=None, metadata=FLAT)
    numbers: PredictedNumbers | None = field(default=None, metadata=FLAT)
    chosen: ChosenExamples | None = field(default=None, metadata=FLAT)
    kind: str | None = field(default=None, metadata=LEFT_OUT)  # how it was predicted; earlier versions did not tell it
    reason: str | None = field(default=None, metadata=LEFT_OUT)  # and why so
    novelty: NovelExamples | None = field(default=None, metadata=LEFT_OUT)  # where the posterior can tell it
