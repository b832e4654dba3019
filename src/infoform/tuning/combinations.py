"""Outputs at one τ as a combination of those at a few others.

    spread(τ) ≈ Σ_k w_k(τ) spread(τ_k)             spread: covariances of outputs, or deviations of sampled networks

Weights are found on a part of the data: a spread changes with τ in much the same way for all inputs, so that weights
which fit a few inputs fit all. Without them every τ of a search would cost a prediction of all validation data.

Where nothing was predicted at τ, outputs are interpolated between neighbours whose sizes are known: the logarithm of a
spread's size is a smooth function of log τ.
"""

import math
from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

from infoform.predicting.raw_outputs import RawOutputs

LEAST = 1e-30  # squared size of a spread that is divided by


def combination_weights(target: RawOutputs, parts: Sequence[RawOutputs]) -> Tensor:  # -> (K,)
    """Return the weights with which the parts' spreads come nearest to the target's.

    Args:
        target: outputs of some examples.
        parts: outputs of the same examples at other τ.

    Returns:
        Weights, in float64, of least squares over all examples; each counts relative to its own size.
    """
    aim = target.spread.double()  # (M, N, k)
    scale = aim.square().sum((0, 2)).clamp_min(LEAST).rsqrt()[None, :, None]
    columns = torch.stack([(part.spread.double() * scale).flatten() for part in parts], dim=1)  # (M N k, K)
    columns /= (sizes := columns.norm(dim=0).clamp_min(LEAST))
    inverse: Tensor = torch.linalg.pinv(columns.T @ columns, hermitian=True)
    weights: Tensor = inverse @ (columns.T @ (aim * scale).flatten()) / sizes
    return weights


def neighbours(tau: float, known: Collection[float]) -> tuple[float, ...]:
    """Return the τ that outputs at another τ are interpolated from: two on each side, as far as there are so many."""
    taus = sorted(known)
    above = next(place for place, one in enumerate(taus) if one > tau)
    return tuple(taus[max(0, above - 2) : above + 2])


def interpolated(tau: float, known: Mapping[float, RawOutputs]) -> RawOutputs:
    """Return outputs at a τ at which nothing was predicted.

    Args:
        tau: τ, between the least and the largest of those known.
        known: outputs of the same examples by τ.

    Returns:
        The mean of its two neighbours' spreads, each relative to its size, times the size that a cubic through the
        logarithms of all sizes has at τ.
    """
    taus = neighbours(tau, known)
    above = next(place for place, one in enumerate(taus) if one > tau)
    sizes = [known[one].spread.double().square().mean((0, 2)).clamp_min(LEAST).log().mean().item() / 2 for one in taus]
    logs = [math.log(one) for one in taus]
    share = (math.log(tau) - logs[above - 1]) / (logs[above] - logs[above - 1])
    size = _cubic(logs, sizes, above, share)
    weights = [(1 - share) * math.exp(size - sizes[above - 1]), share * math.exp(size - sizes[above])]
    beside = [known[taus[above - 1]], known[taus[above]]]
    return RawOutputs.combined(torch.tensor(weights, dtype=torch.float64), beside)


def _cubic(x: Sequence[float], y: Sequence[float], above: int, share: float) -> float:
    """Return the value between two places of a cubic whose slopes there are those of the neighbours' chords."""
    left, right = above - 1, above
    width = x[right] - x[left]

    def slope(place: int) -> float:
        low, high = max(0, place - 1), min(len(x) - 1, place + 1)
        return (y[high] - y[low]) / (x[high] - x[low])

    t = share
    kept = (1 + 2 * t) * (1 - t) ** 2 * y[left] + t**2 * (3 - 2 * t) * y[right]
    return kept + width * (t * (1 - t) ** 2 * slope(left) - t**2 * (1 - t) * slope(right))
