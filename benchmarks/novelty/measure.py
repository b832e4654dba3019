"""Figures of one network: how well scores tell unknown pictures from known ones, and what they make of spoilt ones."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from benchmarks.novelty.features import Features
from benchmarks.novelty.ours import Scores
from torch import Tensor

from infoform import metrics
from infoform.experiments.unknown_pictures import CORRUPTIONS

FALSE_ALARMS = 0.05
KNOWN = ("train", "validation", "fresh")
CURVES = ("novelty", "entropy", "energy", "kNN")  # scores whose rise with the strength of a corruption is told


def is_unknown(name: str) -> bool:
    """Whether a set is neither known nor spoilt in some strength."""
    return name not in KNOWN and not name[-1].isdigit()


def unknown_figures(scores: Mapping[str, Tensor], *, limit: float | None = None) -> dict[str, Any]:
    """Return AUROC and FPR at 95 % TPR for every unknown set, and the false alarms on fresh known pictures.

    Args:
        scores: By set, larger for what looks stranger.
        limit: A score above it is an alarm; where None, the 95 % point of the validation pictures.
    """
    limit = float(scores["validation"].quantile(1 - FALSE_ALARMS)) if limit is None else limit
    sets = {}
    for name, values in scores.items():
        if is_unknown(name):
            one = metrics.ood(scores["fresh"], values)
            sets[name] = {
                "auroc": one["auroc"],
                "fpr95": one["fpr95"],
                "found": float((values > limit).double().mean()),
            }
    return {"sets": sets, "false_alarms": float((scores["fresh"] > limit).double().mean())}


def corruption_curves(
    scores: Scores, sets: Mapping[str, Features], count: int, methods: Sequence[str] = CURVES
) -> dict[str, Any]:
    """Return errors and alarms of the first fresh pictures, as they are and in five strengths of each corruption."""
    fresh = sets["fresh"]
    assert fresh.labels is not None
    labels = fresh.labels[:count]
    curves: dict[str, Any] = {}
    for name, (_, strengths) in CORRUPTIONS.items():
        spoilt = [f"{name} {number}" for number in range(1, len(strengths) + 1)]
        logits = [fresh.logits[:count], *(sets[one].logits for one in spoilt)]
        errors = [float((one.argmax(1) != labels).double().mean()) for one in logits]
        told: dict[str, Any] = {"error": errors}
        for method in methods:
            limit = scores[method]["validation"].quantile(1 - FALSE_ALARMS)
            values = [scores[method]["fresh"][:count], *(scores[method][one] for one in spoilt)]
            told[method] = [float((one > limit).double().mean()) for one in values]
        novelty = [scores["novelty"]["fresh"][:count], *(scores["novelty"][one] for one in spoilt)]
        told["mean novelty"] = [float(one.mean()) for one in novelty]
        curves[name] = told
    return curves


def split_false_alarms(scores: Mapping[str, Tensor], splits: int) -> float:
    """Return the mean rate of false alarms over random splits of all known pictures into the same two sizes."""
    known = torch.cat([scores["validation"], scores["fresh"]])
    first = len(scores["validation"])
    generator = torch.Generator().manual_seed(0)
    rates = []
    for _ in range(splits):
        order = known[torch.randperm(len(known), generator=generator)]
        rates.append(float((order[first:] > order[:first].quantile(1 - FALSE_ALARMS)).double().mean()))
    return sum(rates) / len(rates)
