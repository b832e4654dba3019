"""What `infoform evaluate` measures: scores beside the network's own, and all that a report draws of them."""

import math
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from infoform.metrics import BINS, entropy_histogram, interval_coverage, ood, reliability
from infoform.metrics import evaluate as measure

if TYPE_CHECKING:
    from infoform.cli.run_folder import OpenRun
    from infoform.prediction import Prediction

SURE = 0.9
CONFIDENCES = (*(percent / 100 for percent in range(100)), 0.995, 0.999)
LEVELS = (*(percent / 100 for percent in range(5, 100, 5)), 0.99)
POINTS = 200  # predictions of a regression with their intervals, in the JSON
SPREAD_BINS = 24


def score(run: "OpenRun", predicted: "Prediction", targets: Tensor) -> dict[str, Any]:
    """Return the measures of predictions and of the trained network alone."""
    plain = plain_prediction(run, predicted)
    result: dict[str, Any] = {
        "examples": len(predicted),
        "scores": measure(predicted, targets),
        "plain_scores": measure(plain, targets),
    }
    if predicted.probs is None:
        return result | _intervals(predicted, plain, targets)
    for prefix, one in (("", predicted), ("plain_", plain)):
        assert one.probs is not None
        edges = torch.linspace(0, 1, BINS + 1)
        result[f"{prefix}reliability"] = {"edges": edges, **asdict(reliability(one.probs, targets))}
        result[f"{prefix}entropy_histogram"] = entropy_histogram(one.normalised_entropy)
    if targets.dim() == 1:
        result |= _confidences(predicted, plain, targets)
    return result


def tell_apart(run: "OpenRun", known: "Prediction", unknown: "Prediction") -> dict[str, Any]:
    """Return how well the uncertainty tells unknown data from known ones."""
    found: dict[str, Any] = {"examples": len(unknown)}
    if known.probs is None:
        spreads = known.epistemic.sum(1), unknown.epistemic.sum(1)
        found["epistemic"] = ood(*spreads)
        found["spread_histogram"] = _spread_histogram(*(spread.sqrt() for spread in spreads))
        return found
    plain_known, plain_unknown = plain_prediction(run, known), plain_prediction(run, unknown)
    found["entropy"] = ood(known.entropy, unknown.entropy)
    found["mutual_information"] = ood(known.mutual_information, unknown.mutual_information)
    found["plain_entropy"] = ood(plain_known.entropy, plain_unknown.entropy)
    found["mean_confidence"] = float(unknown.confidence.mean())
    found["plain_mean_confidence"] = float(plain_unknown.confidence.mean())
    found["entropy_histogram"] = entropy_histogram(unknown.normalised_entropy)
    found["plain_entropy_histogram"] = entropy_histogram(plain_unknown.normalised_entropy)
    return found


def plain_prediction(run: "OpenRun", predicted: "Prediction") -> "Prediction":
    """Return what the trained network says by itself: its own probabilities, or its mean with the fitted noise."""
    none = torch.zeros_like(predicted.epistemic)
    if predicted.probs is None:
        return replace(predicted, mean=predicted.plain, epistemic=none, samples=None)
    one_of_many = run.laplace.likelihood.name == "classification"
    probs = predicted.plain.softmax(1) if one_of_many else predicted.plain.sigmoid()
    entropies: Tensor = torch.special.entr(probs)
    if not one_of_many:
        entropies = entropies + torch.special.entr(1 - probs)
    entropy = entropies.sum(1).clamp_max(predicted.max_entropy if math.isfinite(predicted.max_entropy) else math.inf)
    return replace(predicted, probs=probs, epistemic=none, aleatoric=probs * (1 - probs), entropy=entropy, samples=None)


def _confidences(predicted: "Prediction", plain: "Prediction", targets: Tensor) -> dict[str, Any]:
    """Return how many predictions have at least this or that confidence, and how many of them are right."""
    table: dict[str, Any] = {"confidence": list(CONFIDENCES)}
    means = {}
    for prefix, one in (("", predicted), ("plain_", plain)):
        confidence = one.confidence.cpu().double()
        right = (one.labels == targets.to(one.labels.device)).cpu().double()
        chosen = [confidence >= level for level in CONFIDENCES]
        table[f"{prefix}examples"] = [int(sure.sum()) for sure in chosen]
        table[f"{prefix}right"] = [float(right[sure].mean()) if bool(sure.any()) else None for sure in chosen]
        means[f"{prefix}mean_confidence"] = float(confidence.mean())
    place = CONFIDENCES.index(SURE)
    sure = {"confidence": SURE, "examples": table["examples"][place], "right": table["right"][place]}
    return {**means, "sure": sure, "by_confidence": table}


def _intervals(predicted: "Prediction", plain: "Prediction", targets: Tensor) -> dict[str, Any]:
    """Return how many targets lie in intervals of this or that level, and some predictions with theirs."""
    assert predicted.mean is not None
    coverage: dict[str, Any] = {"level": list(LEVELS)}
    for name, one in (("found", predicted), ("plain", plain)):
        assert one.mean is not None
        coverage[name] = [interval_coverage(one.mean, one.variance, targets, level=level) for level in LEVELS]
    order = predicted.mean[:, 0].argsort(stable=True)
    places = order[torch.linspace(0, len(order) - 1, min(POINTS, len(order))).round().long()]
    low, high = predicted.interval(SURE)
    points = {
        "level": SURE,
        "index": places,
        "mean": predicted.mean[places, 0],
        "low": low[places, 0],
        "high": high[places, 0],
        "target": targets.reshape(predicted.mean.shape)[places.to(targets.device), 0],
    }
    return {"interval_coverage": coverage, "points": points}


def _spread_histogram(known: Tensor, unknown: Tensor) -> dict[str, Any]:  # (N,), (M,)
    """Count standard deviations in bins of equal width on a logarithmic scale."""
    known, unknown = (spread.detach().double().cpu() for spread in (known, unknown))
    both = torch.cat([known, unknown])
    least = max(float(both[both > 0].min()) if bool((both > 0).any()) else 1e-12, 1e-6 * float(both.max()), 1e-12)
    most = max(float(both.max()), least * (1 + 1e-6))
    edges = torch.logspace(math.log10(least), math.log10(most), SPREAD_BINS + 1, dtype=torch.float64)

    def counted(spread: Tensor) -> Tensor:
        places = torch.bucketize(spread, edges[1:-1])
        return torch.bincount(places, minlength=SPREAD_BINS)

    return {"edges": edges, "known": counted(known), "unknown": counted(unknown)}
