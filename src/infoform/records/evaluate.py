"""`evaluate.json`: scores of the predictions beside those of the network alone, and all that a report draws of them.

Keys with `plain_` before them are about the network alone, without its uncertainty.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from infoform.common.json_values import FLAT, LEFT_OUT
from infoform.records.examples import ChosenExamples
from infoform.records.novelty import NovelExamples
from infoform.records.unknown_sets import UnknownSet


@dataclass(frozen=True)
class ReliabilityBins:
    """A reliability diagram: mean confidence and share of right answers of each bin; None where a bin is empty."""

    edges: list[float]
    confidence: list[float | None]
    accuracy: list[float | None]
    count: list[int]


@dataclass(frozen=True)
class Histogram:
    """How many values lie between each pair of edges."""

    edges: list[float]
    count: list[int]


@dataclass(frozen=True)
class Calibration:
    """How far the probabilities of classes can be trusted."""

    reliability: ReliabilityBins
    entropy_histogram: Histogram
    plain_reliability: ReliabilityBins
    plain_entropy_histogram: Histogram


@dataclass(frozen=True)
class SurePredictions:
    """The predictions with at least some confidence, and the share of them that is right; None without any."""

    confidence: float
    examples: int
    right: float | None


@dataclass(frozen=True)
class ByConfidence:
    """The same for many least confidences."""

    confidence: list[float]
    examples: list[int]
    right: list[float | None]
    plain_examples: list[int]
    plain_right: list[float | None]


@dataclass(frozen=True)
class Confidences:
    """How sure the predictions of one class an example are, and how often sure ones are right."""

    mean_confidence: float
    plain_mean_confidence: float
    sure: SurePredictions
    by_confidence: ByConfidence


@dataclass(frozen=True)
class IntervalCoverage:
    """The share of truths inside intervals of each level."""

    level: list[float]
    found: list[float]
    plain: list[float]


@dataclass(frozen=True)
class PredictedPoints:
    """Some predictions of a number, in rising order, with their intervals and the truths."""

    level: float
    index: list[int]
    mean: list[float]
    low: list[float]
    high: list[float]
    target: list[float]


@dataclass(frozen=True)
class Intervals:
    """How far the intervals around predicted numbers can be trusted."""

    interval_coverage: IntervalCoverage
    points: PredictedPoints


@dataclass(frozen=True)
class Separation:
    """How well one measure of uncertainty tells unknown examples from known ones."""

    auroc: float
    aupr: float
    fpr95: float


@dataclass(frozen=True)
class UnknownClasses:
    """Uncertainty about the classes of unknown examples."""

    entropy: Separation
    mutual_information: Separation
    plain_entropy: Separation
    mean_confidence: float
    plain_mean_confidence: float
    entropy_histogram: Histogram
    plain_entropy_histogram: Histogram


@dataclass(frozen=True)
class SpreadHistogram:
    """Standard deviations of known and of unknown examples, counted between the same edges."""

    edges: list[float]
    known: list[int]
    unknown: list[int]


@dataclass(frozen=True)
class UnknownNumbers:
    """Uncertainty about the numbers predicted for unknown examples."""

    epistemic: Separation
    spread_histogram: SpreadHistogram


@dataclass(frozen=True)
class UnknownNovelty:
    """How unlike the training data unknown examples look: by all parts of novelty together, and by each alone."""

    together: Separation
    parts: Mapping[str, Separation]
    called: NovelExamples


@dataclass(frozen=True)
class UnknownResult:
    """What was found on unknown data; of `classes` and `numbers` one is there."""

    examples: int
    classes: UnknownClasses | None = field(default=None, metadata=FLAT)
    numbers: UnknownNumbers | None = field(default=None, metadata=FLAT)
    chosen: ChosenExamples | None = field(default=None, metadata=FLAT)
    novelty: UnknownNovelty | None = field(default=None, metadata=LEFT_OUT)  # where the posterior can tell it
    name: str | None = field(default=None, metadata=LEFT_OUT)  # of the set; earlier versions did not tell it

    @property
    def separations(self) -> dict[str, Separation]:
        """Return how well each measure of uncertainty tells unknown from known examples, by the measure's name."""
        if self.classes is not None:
            names = ("plain_entropy", "entropy", "mutual_information")
            return {name: getattr(self.classes, name) for name in names}
        return {} if self.numbers is None else {"epistemic": self.numbers.epistemic}

    @property
    def separation(self) -> Separation | None:
        """Return how well the uncertainty tells unknown from known examples, by the measure that is told first."""
        return next((self.separations[name] for name in ("entropy", "epistemic") if name in self.separations), None)

    @property
    def best_separation(self) -> tuple[str, Separation] | None:
        """Return the measure with the highest AUROC, novelty among them and the network alone left out."""
        found = {name: one for name, one in self.separations.items() if not name.startswith("plain")}
        if self.novelty is not None:
            found["novelty"] = self.novelty.together
        return max(found.items(), key=lambda pair: pair[1].auroc) if found else None


@dataclass(frozen=True)
class EvaluateResult:
    """What `infoform evaluate` found: `calibration` where classes are predicted, `intervals` where numbers are."""

    examples: int
    scores: Mapping[str, float | None]
    plain_scores: Mapping[str, float | None]
    likelihood: str | None = field(default=None, metadata=LEFT_OUT)  # earlier versions did not tell it
    calibration: Calibration | None = field(default=None, metadata=FLAT)
    confidences: Confidences | None = field(default=None, metadata=FLAT)
    intervals: Intervals | None = field(default=None, metadata=FLAT)
    chosen: ChosenExamples | None = field(default=None, metadata=FLAT)
    unknown: UnknownResult | None = field(default=None, metadata=LEFT_OUT)
    kind: str | None = field(default=None, metadata=LEFT_OUT)  # how it was predicted; earlier versions did not tell it
    reason: str | None = field(default=None, metadata=LEFT_OUT)  # and why so
    novelty: NovelExamples | None = field(default=None, metadata=LEFT_OUT)  # of the known data: false alarms
    unknown_sets: list[UnknownSet] | None = field(default=None, metadata=LEFT_OUT)  # with novelty, for a report
    more_unknown: list[UnknownResult] | None = field(default=None, metadata=LEFT_OUT)  # sets after the first one
    plain_temperature: float | None = field(default=None, metadata=LEFT_OUT)  # best for the network alone, by `tune`
    temperature_scores: Mapping[str, float | None] | None = field(default=None, metadata=LEFT_OUT)  # with it alone

    @property
    def every_unknown(self) -> list[UnknownResult]:
        """Return what was found on each set of unknown data."""
        return [] if self.unknown is None else [self.unknown, *(self.more_unknown or ())]
