"""Outputs of sampled networks at one τ from those at others: the same deviations, made larger or smaller.

    f_m = plain ± o_k + e_k,   o_k, e_k: half of the difference and half of the sum of an opposite pair's deviations

o changes with τ as the deviations of weights do, e as their squares. How large both are at a τ is seen on a part of the
data. It is their size that matters to a mean over networks, and not that each network is what it would be at that τ.
Weights of least squares, as for covariances, would make them too small.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from infoform.predicting.raw_outputs import RawOutputs

LEAST = 1e-30  # squared size of deviations that is divided by
LARGEST = 40.0  # logarithm of a factor


@dataclass(frozen=True, eq=False)
class Halves:
    """The deviations of networks in opposite pairs."""

    odd: Tensor  # (K, N, C); of a network without an opposite its whole deviation
    even: Tensor  # (K, N, C)

    @classmethod
    def of(cls, raw: RawOutputs) -> "Halves":
        """Return those of sampled networks, in which each is followed by its opposite."""
        assert raw.samples is not None
        spread = raw.spread
        first, second = spread[::2], spread[1::2]
        if len(second) < len(first):
            second = torch.cat([second, -first[-1:]])
        return cls((first - second) / 2, (first + second) / 2)

    @property
    def log_sizes(self) -> tuple[float, float]:
        """Return the logarithms of the root mean squares of both, averaged over examples."""
        odd, even = (
            half.double().square().mean((0, 2)).clamp_min(LEAST).log().mean() for half in (self.odd, self.even)
        )
        return float(odd) / 2, float(even) / 2

    def scaled(self, odd: float, even: float) -> "Halves":
        """Return both, times numbers."""
        return Halves(odd * self.odd, even * self.even)

    def as_outputs(self, raw: RawOutputs) -> RawOutputs:
        """Return the outputs of these networks, as many as `raw` has, around the same trained one."""
        assert raw.samples is not None
        both = torch.stack([self.even + self.odd, self.even - self.odd], dim=1).flatten(0, 1)
        return raw.with_spread(both[: len(raw.samples)])


def mixed(
    raws: Sequence[RawOutputs], shares: Sequence[float], log_sizes: tuple[float, float], parts: Sequence[RawOutputs]
) -> tuple[RawOutputs, RawOutputs]:
    """Return mixtures of outputs, of all data and of the part, that have the sizes wanted on the part.

    Args:
        raws: outputs of all data at some τ.
        shares: how much of each.
        log_sizes: logarithms of the sizes of odd and even halves that the part has at the τ wanted.
        parts: outputs of the part at the same τ as `raws`.
    """
    whole, part = (_sum([Halves.of(one) for one in some], shares) for some in (raws, parts))
    # deviations that are 0 up to rounding, as the even ones of a linear network, stay so
    factors = [math.exp(min(aim - own, LARGEST)) for aim, own in zip(log_sizes, part.log_sizes, strict=True)]
    return whole.scaled(*factors).as_outputs(raws[0]), part.scaled(*factors).as_outputs(parts[0])


def _sum(halves: Sequence[Halves], shares: Sequence[float]) -> Halves:
    odd = sum(share * half.odd for share, half in zip(shares, halves, strict=True))
    even = sum(share * half.even for share, half in zip(shares, halves, strict=True))
    assert isinstance(odd, Tensor)
    assert isinstance(even, Tensor)
    return Halves(odd, even)
