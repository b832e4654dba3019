"""What `infoform evaluate` measures: scores beside those of the network alone, and all that a report draws."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from infoform.metrics import BINS, as_rows, evaluate, interval_coverage, ood, reliability
from infoform.metrics import entropy_histogram as count_entropies
from infoform.records.evaluate import (
    ByConfidence,
    Calibration,
    Confidences,
    EvaluateResult,
    Histogram,
    IntervalCoverage,
    Intervals,
    PredictedPoints,
    ReliabilityBins,
    Separation,
    SpreadHistogram,
    SurePredictions,
    UnknownClasses,
    UnknownNumbers,
    UnknownResult,
)

if TYPE_CHECKING:
    from infoform.likelihoods import Likelihood
    from infoform.prediction import Prediction

SURE = 0.9
CONFIDENCES = (*(percent / 100 for percent in range(100)), 0.995, 0.999)
LEVELS = (*(percent / 100 for percent in range(5, 100, 5)), 0.99)
POINTS = 200  # predicted numbers with their intervals, in the JSON
SPREAD_BINS = 24


def score(
    likelihood: "Likelihood",
    predicted: "Prediction",
    targets: Tensor,
    *,
    noise: float | None,
    temperature: float | None = None,
) -> EvaluateResult:
    """Return the measures of predictions, of the trained network alone, and of it with a temperature, if given."""
    examples = len(predicted)
    predicted, targets = as_rows(predicted, targets)
    plain = likelihood.plain_prediction(predicted.plain, noise=noise)
    measure = likelihood.scores if likelihood.own_density else evaluate
    result = EvaluateResult(examples, measure(predicted, targets), measure(plain, targets), likelihood=likelihood.name)
    if temperature is not None and likelihood.has_logits:
        scaled = likelihood.plain_prediction(predicted.plain / temperature, noise=noise)
        result = replace(result, plain_temperature=temperature, temperature_scores=measure(scaled, targets))
    if predicted.probs is None:
        return replace(result, intervals=_intervals(predicted, plain, targets))
    result = replace(
        result,
        calibration=Calibration(
            reliability=_reliability(predicted, targets),
            entropy_histogram=_entropies(predicted),
            plain_reliability=_reliability(plain, targets),
            plain_entropy_histogram=_entropies(plain),
        ),
    )
    if targets.dim() == 1:
        result = replace(result, confidences=_confidences(predicted, plain, targets))
    return result


def tell_apart(likelihood: "Likelihood", known: "Prediction", unknown: "Prediction") -> UnknownResult:
    """Return how well the uncertainty tells unknown data from known ones."""
    if known.probs is None:
        spreads = tuple(each.example_mean(each.epistemic.sum(-1)) for each in (known, unknown))
        histogram = _spread_histogram(*(spread.sqrt() for spread in spreads))
        return UnknownResult(len(unknown), numbers=UnknownNumbers(Separation(**ood(*spreads)), histogram))
    plain_known, plain_unknown = (_alone(likelihood, each) for each in (known, unknown))

    def apart(ours: "Prediction", theirs: "Prediction", name: str) -> Separation:
        return Separation(**ood(*(each.example_mean(getattr(each, name)) for each in (ours, theirs))))

    classes = UnknownClasses(
        entropy=apart(known, unknown, "entropy"),
        mutual_information=apart(known, unknown, "mutual_information"),
        plain_entropy=apart(plain_known, plain_unknown, "entropy"),
        mean_confidence=float(unknown.example_mean(unknown.confidence).mean()),
        plain_mean_confidence=float(plain_unknown.example_mean(plain_unknown.confidence).mean()),
        entropy_histogram=_entropies(unknown),
        plain_entropy_histogram=_entropies(plain_unknown),
    )
    return UnknownResult(len(unknown), classes=classes)


def _alone(likelihood: "Likelihood", predicted: "Prediction") -> "Prediction":
    """Return the prediction of the trained network alone, at the same positions."""
    if not predicted.positions:
        return likelihood.plain_prediction(predicted.plain, noise=None)
    rows = likelihood.plain_prediction(predicted.plain.flatten(0, -2), noise=None)
    return rows.at_positions(predicted.positions, predicted.mask)


def _reliability(predicted: "Prediction", targets: Tensor) -> ReliabilityBins:
    assert predicted.probs is not None
    bins = reliability(predicted.probs, targets)
    edges = torch.linspace(0, 1, BINS + 1)
    columns = (edges, bins.confidence, bins.accuracy, bins.count)
    return ReliabilityBins(*(column.tolist() for column in columns))


def _entropies(predicted: "Prediction") -> Histogram:
    entropies = predicted.as_rows()[0].entropy if predicted.positions else predicted.entropy
    counted = count_entropies(entropies, span=(0.0, predicted.max_entropy))
    return Histogram(counted.edges.tolist(), counted.count.tolist())


def _confidences(predicted: "Prediction", plain: "Prediction", targets: Tensor) -> Confidences:
    """Return how many predictions have at least this or that confidence, and how many of them are right."""
    examples, right, mean = _above_confidences(predicted, targets)
    plain_examples, plain_right, plain_mean = _above_confidences(plain, targets)
    place = CONFIDENCES.index(SURE)
    return Confidences(
        mean_confidence=mean,
        plain_mean_confidence=plain_mean,
        sure=SurePredictions(SURE, examples[place], right[place]),
        by_confidence=ByConfidence(list(CONFIDENCES), examples, right, plain_examples, plain_right),
    )


def _above_confidences(predicted: "Prediction", targets: Tensor) -> tuple[list[int], list[float | None], float]:
    """Return the number of predictions at each least confidence, the share that is right, and the mean confidence."""
    confidence = predicted.confidence.cpu().double()
    right = (predicted.labels == targets.to(predicted.labels.device)).cpu().double()
    chosen = [confidence >= level for level in CONFIDENCES]
    shares = [float(right[sure].mean()) if bool(sure.any()) else None for sure in chosen]
    return [int(sure.sum()) for sure in chosen], shares, float(confidence.mean())


def _intervals(predicted: "Prediction", plain: "Prediction", targets: Tensor) -> Intervals:
    """Return how many targets lie in intervals of this or that level, and some predictions with their intervals."""
    assert predicted.mean is not None
    coverage = IntervalCoverage(list(LEVELS), _coverage(predicted, targets), _coverage(plain, targets))
    order = predicted.mean[:, 0].argsort(stable=True)
    places = order[torch.linspace(0, len(order) - 1, min(POINTS, len(order))).round().long()]
    low, high = predicted.gaussian_interval(SURE)
    points = PredictedPoints(
        level=SURE,
        index=places.tolist(),
        mean=predicted.mean[places, 0].tolist(),
        low=low[places, 0].tolist(),
        high=high[places, 0].tolist(),
        target=targets.reshape(predicted.mean.shape)[places.to(targets.device), 0].tolist(),
    )
    return Intervals(coverage, points)


def _coverage(predicted: "Prediction", targets: Tensor) -> list[float]:
    assert predicted.mean is not None
    return [interval_coverage(predicted.mean, predicted.variance, targets, level=level) for level in LEVELS]


def _spread_histogram(known: Tensor, unknown: Tensor) -> SpreadHistogram:  # (N,), (M,)
    """Count standard deviations in bins of equal width on a logarithmic scale."""
    known, unknown = (spread.detach().double().cpu() for spread in (known, unknown))
    both = torch.cat([known, unknown])
    least = max(float(both[both > 0].min()) if bool((both > 0).any()) else 1e-12, 1e-6 * float(both.max()), 1e-12)
    most = max(float(both.max()), least * (1 + 1e-6))
    edges = torch.logspace(math.log10(least), math.log10(most), SPREAD_BINS + 1, dtype=torch.float64)

    def counted(spread: Tensor) -> list[int]:
        places = torch.bucketize(spread, edges[1:-1])
        counts: list[int] = torch.bincount(places, minlength=SPREAD_BINS).tolist()
        return counts

    return SpreadHistogram(edges.tolist(), counted(known), counted(unknown))
