"""The share of known examples that score higher: empirical, with a fitted tail beyond the largest score.

Of n known scores the i-th smallest has the level i / (n + 1), which a fresh known score stays below with that
probability. Levels between are interpolated. Beyond the largest score x_n the share falls off exponentially,

    p(x) = exp(−(x − x_n) / β) / (n + 1),    β = mean excess over the 90 % point

so that very strange inputs can still be told from strange ones. Few levels of many scores are stored.
"""

import math
from dataclasses import dataclass, fields
from functools import cached_property

import torch
from torch import Tensor

from infoform.common.exporting import places_among

LEVELS = 33  # levels that are stored of many scores
TAIL = 0.9  # level that the tail is fitted from


@dataclass(frozen=True, eq=False)
class Percentiles:
    """The distributions of R scores of known examples."""

    count: Tensor  # (): n, how many examples there were
    levels: Tensor  # (Q,): rising, between 0 and 1
    points: Tensor  # (R, Q): scores at these levels
    tails: Tensor  # β (R,)

    @classmethod
    def of(cls, scores: Tensor) -> "Percentiles":  # (n, R)
        """Return the distributions of known scores, of at least one example."""
        ordered = scores.double().cpu().T.sort(dim=1).values  # (R, n)
        count = ordered.shape[1]
        own = torch.arange(1, count + 1, dtype=torch.float64) / (count + 1)
        levels = own if count <= LEVELS else _stored_levels(count)
        points = interpolated(levels.expand(len(ordered), -1), own.expand(len(ordered), -1), ordered)
        return cls(torch.tensor(count), levels.float(), points.float(), _mean_excess(ordered, own).float())

    @property
    def nbytes(self) -> int:
        """Return the bytes of all fields."""
        return sum(one.nbytes for one in self.tensors().values())

    def tensors(self) -> dict[str, Tensor]:
        """Return all fields by name, for a file."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def log_p_values(self, scores: Tensor) -> Tensor:  # (N, R) -> (N, R)
        """Return the log of the share of known examples that score higher."""
        table = self._table
        x = scores.double().cpu().T.contiguous()  # (R, N)
        place = places_among(table.points, x)  # of an interval that ends there; of equal points at the first
        start, anchor, slope = (one.gather(1, place) for one in (table.starts, table.anchors, table.slopes))
        excess = (x - anchor) * slope
        # a share between two points, and an exponential beyond them
        inside, above = torch.log1p(-start - excess), start.neg().log1p() - excess
        below = torch.log1p(-start * excess.clamp_max(0).exp())
        found = torch.where(place == 0, below, torch.where(place == table.points.shape[1], above, inside))
        return found.nan_to_num_(nan=-torch.inf, neginf=-torch.inf, posinf=0.0).T.to(scores.device)

    @cached_property
    def _table(self) -> "_Intervals":
        return _Intervals.of(self)

    def joined(self, other: "Percentiles") -> "Percentiles":
        """Return about the distributions of both sets of examples together."""
        return Percentiles.of(torch.cat([self._examples(), other._examples()]))

    def _examples(self) -> Tensor:  # (n, R)
        """Return as many scores as there were, at even levels."""
        count = int(self.count)
        even = torch.arange(1, count + 1, dtype=torch.float64) / (count + 1)
        rows, levels = len(self.points), self.levels.double().cpu()
        return interpolated(even.expand(rows, -1), levels.expand(rows, -1), self.points.double().cpu()).T


@dataclass(frozen=True, eq=False)
class _Intervals:
    """The intervals between points, with those below the first and above the last: level = start + (x − anchor) slope.

    Below and above, `slope` is 1 / β and the level follows an exponential.
    """

    points: Tensor  # (R, Q)
    starts: Tensor  # (R, Q + 1)
    anchors: Tensor  # (R, Q + 1)
    slopes: Tensor  # (R, Q + 1)

    @classmethod
    def of(cls, one: Percentiles) -> "_Intervals":
        points, rate = one.points.double().cpu().contiguous(), 1 / one.tails.double().cpu()[:, None]
        levels = one.levels.double().cpu().expand_as(points)
        steps = (points[:, 1:] - points[:, :-1]).clamp_min(torch.finfo(torch.float64).tiny)
        return cls(
            points,
            torch.cat([levels[:, :1], levels], dim=1),
            torch.cat([points[:, :1], points], dim=1),
            torch.cat([rate, (levels[:, 1:] - levels[:, :-1]) / steps, rate], dim=1),
        )


def interpolated(x: Tensor, points: Tensor, values: Tensor) -> Tensor:  # (R, N), (R, Q), (R, Q) -> (R, N)
    """Return values between given ones, linear from point to point and constant outside; of equal points the first."""
    right = torch.searchsorted(points.contiguous(), x.contiguous()).clamp(1, max(1, points.shape[1] - 1))
    right = right.clamp_max(points.shape[1] - 1)
    left = (right - 1).clamp_min(0)
    low, high = points.gather(1, left), points.gather(1, right)
    share = ((x - low) / (high - low).clamp_min(torch.finfo(x.dtype).tiny)).clamp(0, 1)
    start, stop = values.gather(1, left), values.gather(1, right)
    return start + share * (stop - start)


def _stored_levels(count: int) -> Tensor:  # (Q,)
    """Return even levels up to the tail, and closer and closer ones up to the largest score."""
    ends = 1 / (count + 1)
    even = torch.linspace(ends, TAIL, LEVELS - 14, dtype=torch.float64)
    tail = 1 - torch.logspace(math.log10(1 - TAIL), math.log10(ends), 15, dtype=torch.float64)[1:]
    return torch.cat([even, tail])


def _mean_excess(ordered: Tensor, levels: Tensor) -> Tensor:  # (R, n), (n,) -> (R,)
    """Return β; of a score that never varied next to nothing."""
    start = interpolated(ordered.new_full((len(ordered), 1), TAIL), levels.expand(len(ordered), -1), ordered)
    excess = (ordered - start).clamp_min(0)
    mean = excess.sum(1) / (excess > 0).sum(1).clamp_min(1)
    spread = ordered[:, -1] - ordered[:, 0]
    # of few examples none may be beyond that point
    return torch.maximum(mean, 0.05 * spread).clamp_min(1e-6 * (1 + ordered.abs().amax(1)))
