"""A budget of bytes spent over the layers where it buys most: kept energy Σ Λ_T for each byte.

Every rank of a layer has a price, the bytes of INF with that many pairs and the columns they use, and a worth, the
energy Σ Λ_T that it keeps. Steps are bought in the order of worth for price, along the concave envelope of each
layer's curve, because a pair that needs new columns is dear and makes the pairs after it cheap. That order does not
depend on the budget: a larger one gives every layer at least the rank that a smaller one gives.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from infoform.common.bytes import show_bytes
from infoform.posteriors import RankCurve


@dataclass(frozen=True)
class RankChoice:
    """What a layer got."""

    rank: int
    nbytes: int
    energy: float


def spend(curves: Mapping[str, RankCurve], budget: int) -> dict[str, RankChoice]:
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


def choice_at(curve: RankCurve, rank: int) -> RankChoice:
    return RankChoice(rank, int(curve.nbytes[rank - 1]), float(curve.energy[rank - 1]))


def _envelope(curve: RankCurve) -> Tensor:
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
