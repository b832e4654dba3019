"""Novelty with one more part: the mutual information of answer and weights, which is the logits' variance put to use.

Its p-value among known pictures, p, joins novelty's by Fisher's rule with a weight w, −2 (log p_novelty + w log p).
Every other known picture gives the percentiles, and the rest are told from unknown ones. A posterior of all layers
takes many passes a picture, which `laplace.novelty` does not; this tells what it would buy.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from infoform.comparing.bootstrap import gain, separations
from infoform.experiments.public_resnets.answered import CrossFitted

WEIGHTS = (0.5, 1.0)
SPREAD = "mutual_information"


def joined(found: CrossFitted, *, resamples: int, seed: int) -> dict[str, dict[str, Any]]:
    """Return, by unknown set, the AUROC of novelty alone and what each weight adds to it.

    Args:
        found: Answers that have novelty and a spread.
        resamples: Number of resampled data sets.
        seed: Of the resampling.

    Returns:
        By set: "novelty", and for each weight the difference of AUROC with the interval of a paired bootstrap.
    """
    known = {name: values[found.first] for name, values in found.known.signs.items()}
    reference = known[SPREAD][::2]
    others = {name: values[1::2] for name, values in known.items()}
    told: dict[str, dict[str, Any]] = {}
    for name, one in found.unknown.items():
        sets = (others, one.signs)
        alone = separations(*(_sum(one, reference, 0.0) for one in sets), resamples=resamples, seed=seed)
        told[name] = {"novelty": alone[0]}
        for weight in WEIGHTS:
            both = separations(*(_sum(one, reference, weight) for one in sets), resamples=resamples, seed=seed)
            more = gain(both[0], both[2], alone[0], alone[2])
            told[name][f"{weight:g}"] = [more.mean, more.low, more.high]
    return told


def _sum(signs: Mapping[str, Tensor], reference: Tensor, weight: float) -> Tensor:  # (N,)
    """Return Fisher's sum; a novelty of 1 counts as the strangest that a percentile can tell."""
    least = 0.5 / (len(reference) + 1)
    total = (1 - signs["novelty"]).clamp_min(least).log()
    if weight:
        ordered = reference.sort().values
        above = len(ordered) - torch.searchsorted(ordered, signs[SPREAD].contiguous())
        total = total + weight * ((above + 1) / (len(ordered) + 1)).log()
    return -2 * total
