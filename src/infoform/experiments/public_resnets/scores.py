"""Scores of a method's answers with their intervals: a bootstrap, paired with that of temperature scaling."""

from typing import Any

import torch
from torch import Tensor

from infoform.comparing.bootstrap import INSIDE, gain, resampled_scores, separations
from infoform.comparing.measures import CLASSES, calibrated_ece
from infoform.experiments.public_resnets.answered import CrossFitted
from infoform.metrics import entropy_histogram, reliability

BINS = 20


def scores(
    found: CrossFitted, targets: Tensor, *, beside: CrossFitted | None, resamples: int, seed: int
) -> dict[str, Any]:
    """Return what a piece of a run keeps of a method's answers.

    Args:
        found: The answers.
        targets: Classes of all test pictures.
        beside: Temperature scaling's answers, to which differences are told.
        resamples: Number of resampled data sets.
        seed: Of the resampling, the same for all methods.

    Returns:
        Scores by name, each with its interval; AUROC by unknown set and sign.
    """
    kept: dict[str, Any] = {}
    for name, measure in CLASSES.items():
        terms = measure.terms(found.known.answers, targets)
        value = float(measure.score(terms.mean(0, keepdim=True)))
        resampled = resampled_scores(measure, terms, resamples=resamples, seed=seed)
        kept[name] = value
        kept[f"{name}_interval"] = _inside(resampled)
        if beside is not None:
            other = measure.terms(beside.known.answers, targets)
            others = resampled_scores(measure, other, resamples=resamples, seed=seed)
            told = gain(value, resampled, float(measure.score(other.mean(0, keepdim=True))), others)
            kept[f"{name}_to_temperature"] = [told.mean, told.low, told.high]
    kept["ece_if_calibrated"] = calibrated_ece(found.known.answers)
    kept["apart"] = {
        name: {sign: _apart(found.known.signs[sign][found.first], values, resamples, seed)
               for sign, values in one.signs.items()}
        for name, one in found.unknown.items()
    }  # fmt: skip
    if "novelty" in found.known.signs:
        kept["false_alarms"] = float((found.known.signs["novelty"][found.first] > 0.95).double().mean())
    diagram = reliability(found.known.value, targets)
    kept["reliability"] = {
        "confidence": [None if one != one else one for one in diagram.confidence.tolist()],
        "accuracy": [None if one != one else one for one in diagram.accuracy.tolist()],
        "count": diagram.count.tolist(),
    }
    kept["histograms"] = {
        sign: {
            name: entropy_histogram(_as_share(values[sign], sign, found.known.value.shape[1]), bins=BINS).count.tolist()
            for name, values in (("known", found.known.signs), *((n, one.signs) for n, one in found.unknown.items()))
        }
        for sign in ("entropy", "novelty")
        if sign in found.known.signs
    }
    return kept


def _apart(known: Tensor, unknown: Tensor, resamples: int, seed: int) -> dict[str, Any]:
    auroc, fpr95, resampled = separations(known, unknown, resamples=resamples, seed=seed)
    return {"auroc": auroc, "auroc_interval": _inside(resampled), "fpr95": fpr95}


def _as_share(values: Tensor, sign: str, classes: int) -> Tensor:
    return (values / torch.tensor(float(classes)).log() if sign == "entropy" else values).clamp(0, 1)


def _inside(resampled: Tensor) -> list[float]:  # (B,)
    return [float(one) for one in torch.quantile(resampled, torch.tensor(INSIDE, dtype=torch.float64))]
