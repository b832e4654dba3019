"""A budget of bytes spent over the layers where it buys most: kept energy Σ Λ_T for each byte.

Every rank of a layer has a price, the bytes of INF with that many pairs and the columns they use, and a worth, the
energy Σ Λ_T that it keeps. Steps are bought in the order of worth for price, along the concave envelope of each
layer's curve, because a pair that needs new columns is dear and makes the pairs after it cheap. That order does not
depend on the budget: a larger one gives every layer at least the rank that a smaller one gives.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from infoform.common.bytes import show_bytes
from infoform.curvature.dimensions import Dimensions
from infoform.curvature.eigenbasis import Eigenbasis, select_pairs
from infoform.posteriors.planned_bytes import inf_bytes


@dataclass(frozen=True, eq=False)
class Curve:
    """Price and worth of the ranks 1, 2, ... of one layer."""

    nbytes: Tensor  # (ranks,), not decreasing
    energy: Tensor  # (ranks,), not decreasing: Σ Λ_T
    total: float  # Σ Λ, what a truncated basis leaves out included


@dataclass(frozen=True)
class RankChoice:
    """What a layer got."""

    rank: int
    nbytes: int
    energy: float


def rank_curve(size: Dimensions, eigen: Eigenbasis, options: Mapping[str, Any], *, max_rank: int) -> Curve:
    """Return the curve of a layer up to `max_rank` kept pairs."""
    values = eigen.eigenvalues.double()
    limit = min(max_rank, values.numel())
    first = eigen.core_pairs if options["core"] == "full" else None
    # ranks are prefixes of this order
    rows, columns = select_pairs(eigen.eigenvalues, rank=limit, support="top", first=first)
    row_times, column_times = _first_times(rows, values.shape[0]), _first_times(columns, values.shape[1])
    used_rows, used_columns = (_counts(times, limit) for times in (row_times, column_times))
    if options["support"] == "grid":  # a pair is kept as soon as its row and its column are
        entered = torch.maximum(row_times[:, None], column_times).flatten().cpu()
        energy = torch.bincount(entered, weights=values.flatten().cpu(), minlength=limit + 1)[:limit].cumsum(0)
        pairs = used_rows * used_columns
        coupled = torch.zeros_like(pairs)
        if first is not None:
            times = torch.maximum(row_times[first[0]], column_times[first[1]]).cpu()
            coupled = torch.bincount(times, minlength=limit + 1)[:limit].cumsum(0)
    else:
        energy = values[rows, columns].cpu().cumsum(0)
        pairs = torch.arange(1, limit + 1)
        coupled = pairs.clamp_max(0 if first is None else first.shape[1])
    nbytes = inf_bytes(size, options, pairs=pairs, rows=used_rows, columns=used_columns, coupled=coupled)
    total = float(values.sum()) + (0.0 if eigen.residual is None else float(eigen.residual.double().sum()))
    allowed = max(1, int((pairs <= max_rank).sum()))
    return Curve(nbytes[:allowed], energy[:allowed], total)


def spend(curves: Mapping[str, Curve], budget: int) -> dict[str, RankChoice]:
    """Return what each layer gets of a budget of bytes for all; every layer gets rank 1 at least."""
    least = sum(int(curve.nbytes[0]) for curve in curves.values())
    if least > budget:
        raise ValueError(
            f"memory must be at least {least} bytes ({show_bytes(least)}), which rank 1 in every layer takes, "
            f"got {budget}; leave layers out with layers=, or store less with storage='uint8'."
        )
    names = list(curves)
    corners = [_envelope(curves[name]) for name in names]  # positions on the curves
    owners, steps, prices, rates = [], [], [], []
    for index, (name, corner) in enumerate(zip(names, corners, strict=True)):
        curve = curves[name]
        price, worth = curve.nbytes[corner].diff(), curve.energy[corner].diff()
        useful = worth > 0
        owners.append(torch.full((int(useful.sum()),), index))
        steps.append(corner[:-1][useful])
        prices.append(price[useful])
        rates.append(worth[useful] / price[useful])
    owner, step, price = torch.cat(owners), torch.cat(steps), torch.cat(prices)
    order = torch.cat(rates).argsort(descending=True, stable=True)
    owner, step, price = owner[order], step[order], price[order]
    spent = price.cumsum(0)
    count = int(torch.searchsorted(spent, budget - least, right=True))
    place = {name: int(corner[0]) for name, corner in zip(names, corners, strict=True)}
    for index, name in enumerate(names):
        taken = step[:count][owner[:count] == index]
        if len(taken):
            corner = corners[index]
            place[name] = int(corner[int(torch.searchsorted(corner, taken[-1])) + 1])
    if count < len(order):  # as much of the next step as can still be paid
        name = names[int(owner[count])]
        left = budget - least - (int(spent[count - 1]) if count else 0)
        nbytes = curves[name].nbytes
        affordable = int(torch.searchsorted(nbytes, nbytes[place[name]] + left, right=True)) - 1
        place[name] = max(place[name], affordable)
    return {name: choice_at(curves[name], place[name] + 1) for name in names}


def choice_at(curve: Curve, rank: int) -> RankChoice:
    return RankChoice(rank, int(curve.nbytes[rank - 1]), float(curve.energy[rank - 1]))


def _first_times(indices: Tensor, count: int) -> Tensor:  # (K,) -> (count,): when each index is first used; K if never
    never = torch.full((count,), len(indices), device=indices.device)
    return never.scatter_reduce(0, indices, torch.arange(len(indices), device=indices.device), "amin")


def _counts(times: Tensor, limit: int) -> Tensor:  # -> (limit,): how many are used at rank 1, 2, ...
    return torch.bincount(times.cpu(), minlength=limit + 1)[:limit].cumsum(0)


def _envelope(curve: Curve) -> Tensor:
    """Return the positions of the corners of the concave envelope, the cheapest first."""
    last = torch.ones(1, dtype=torch.bool)
    corner = torch.cat([curve.nbytes.diff() > 0, last]).nonzero().squeeze(1)  # the best of equal price
    while True:
        rate = curve.energy[corner].diff() / curve.nbytes[corner].diff()
        # a point on or below the line between its neighbours is no corner, whether or not they stay
        above = torch.cat([last, rate[:-1] > rate[1:], last])[: len(corner)]
        if bool(above.all()):
            return corner
        corner = corner[above]
