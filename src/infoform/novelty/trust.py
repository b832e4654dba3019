"""How far distances between inputs may order ordinary inputs, and not only tell very strange ones.

Where the features of a network are known well, known inputs that lie far from all classes also get a less sure answer.
With few training examples a class, or many classes, they do not: distances then say how busy a picture is, and
unknown inputs may look *more* usual than known ones. The rank correlation ρ of the head's distance and the answer's
strangeness over known examples tells which it is, without labels and without any unknown input:

    trust = 0 below ρ = 0.3,  1 above ρ = 0.5,  linear between

With T trust, a part k other than the answer adds to Fisher's sum

    T w_k L_k + (1 − T) max(0, L_k − 3),    L_k = −log p_k

so that a part without trust counts only for inputs that fewer than one known input in twenty is as strange as.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from infoform.novelty.parts import PARTS

NONE, FULL = 0.3, 0.5  # rank correlations; chosen as docs/novelty-compared.md says
FEW = 100  # known examples below which the correlation is noise, and all parts are trusted
RARE = -math.log(0.05)  # L from which a part without trust counts


def trust_of(scores: Mapping[str, Tensor]) -> float:  # (N,) by part
    """Return how far distances are trusted, from 0 to 1, by the scores of known examples."""
    if "head" not in scores or "answer" not in scores or len(scores["head"]) < FEW:
        return 1.0
    return min(1.0, max(0.0, (rank_correlation(scores["head"], scores["answer"]) - NONE) / (FULL - NONE)))


def rank_correlation(one: Tensor, other: Tensor) -> float:  # (N,), (N,)
    """Return Spearman's correlation; equal numbers share the mean of their ranks, and a constant has none."""
    ranks = torch.stack([_ranks(one), _ranks(other)])
    away = ranks - ranks.mean(1, keepdim=True)
    lengths = away.norm(dim=1)
    return float(away[0] @ away[1] / (lengths[0] * lengths[1]).clamp_min(torch.finfo(torch.float64).tiny))


def fisher_sum(log_p: Tensor, names: tuple[str, ...], trust: float) -> Tensor:  # (N, P) -> (N, 1)
    """Return minus twice the weighted sum of log p-values, those of parts without trust only where they are rare."""
    weights = log_p.new_tensor([PARTS[name].weight * (1.0 if PARTS[name].trusted else trust) for name in names])
    total = -(log_p @ weights)
    if trust < 1:
        rest = log_p.new_tensor([0.0 if PARTS[name].trusted else 1 - trust for name in names])
        total = total + (-log_p - RARE).clamp_min(0) @ rest
    return 2 * total.unsqueeze(1)


def _ranks(values: Tensor) -> Tensor:  # (N,)
    """Return the ranks, from 0, of values; equal ones share the mean."""
    _, places, counts = values.double().cpu().unique(return_inverse=True, return_counts=True)
    means: Tensor = counts.cumsum(0) - (counts.double() + 1) / 2  # (distinct values,)
    return means[places]
