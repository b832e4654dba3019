"""What mc_or_linear.py measured, as curves over the prior precision, and AUROC read off them; for its page."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

Row = dict[str, Any]
PAIR = ("linear-mc", "mc")
FINE = 20  # interpolated values of τ between two of the grid


@dataclass(frozen=True)
class Curve:
    """One network, structure and prior: all kinds over all prior precisions."""

    task: str
    structure: str
    prior: str
    seed: int
    rows: Sequence[Row]  # by rising τ
    widths: Mapping[str, Row]  # "best" and "wide": τ and, with the activation prior, what single layers do

    def at(self, width: str) -> Row:
        return next(row for row in self.rows if row["prior_precision"] == self.widths[width]["prior_precision"])

    def auroc(self, width: str, kind: str) -> float:
        if kind == "apart":
            return float(self.widths[width]["layers"]["apart"]["auroc"])
        found = self.at(width)["kinds"].get(kind)
        return math.nan if found is None else float(found["auroc"])

    def best(self, kind: str) -> float:
        """Return the τ of a kind's least NLL among those tried."""
        tried = [row for row in self.rows if kind in row["kinds"]]
        return float(min(tried, key=lambda row: row["kinds"][kind]["nll"])["prior_precision"])

    def points(self, kind: str) -> list[tuple[float, float]]:
        """Return (NLL, AUROC) along τ; between values tried log NLL and AUROC are taken as linear in log τ."""
        known = [row["kinds"][kind] for row in self.rows if kind in row["kinds"]]
        found = [(one["nll"], one["auroc"]) for one in known]
        between = [
            (first[0] ** (1 - share) * second[0] ** share, first[1] * (1 - share) + second[1] * share)
            for first, second in pairwise(found)
            for share in (step / FINE for step in range(FINE))
        ]
        return [*between, *found[-1:]]

    def least(self, kind: str) -> float:
        return min((nll for nll, _ in self.points(kind)), default=math.nan)

    def within(self, kind: str, budget: float) -> float:
        """Return the largest AUROC at this NLL or a smaller one; nan where there is none."""
        return max((auroc for nll, auroc in self.points(kind) if nll <= budget), default=math.nan)

    def within_is_open(self, kind: str, budget: float) -> bool:
        """Return whether that AUROC is at the smallest τ tried, so that a smaller one might have a larger."""
        points = self.points(kind)
        return bool(points) and points[0][0] <= budget and points[0][1] >= self.within(kind, budget)

    def common(self, factor: float) -> float:
        """Return this many times the least NLL that both mc and linear-mc reach."""
        return factor * max(self.least(kind) for kind in PAIR)


SAME_TAU, OWN, SAME_NLL = "same τ, best", "own least NLL + 5 %", "same NLL, least + 5 %"
AT_TAU = {SAME_TAU: "best", "same τ, wide": "wide"}
NLL_BUDGETS: dict[str, Callable[[Curve, str], float]] = {
    OWN: lambda curve, kind: 1.05 * curve.least(kind),
    SAME_NLL: lambda curve, kind: curve.common(1.05),
    "same NLL, least + 25 %": lambda curve, kind: curve.common(1.25),
}


def auroc_at(curve: Curve, condition: str, kind: str) -> float:
    if condition in AT_TAU:
        return curve.auroc(AT_TAU[condition], kind)
    return curve.within(kind, NLL_BUDGETS[condition](curve, kind))


def gaps(curves: Iterable[Curve], condition: str) -> list[float]:
    return [auroc_at(curve, condition, "mc") - auroc_at(curve, condition, "linear-mc") for curve in curves]


def read_curves(rows: Sequence[Row]) -> list[Curve]:
    found: dict[tuple[str, str, str, int], list[Row]] = defaultdict(list)
    for row in rows:
        if row["structure"] != "plain":
            found[row["task"], row["structure"], row["prior"], row["seed"]].append(row)
    curves = []
    for key, own in found.items():
        measured = sorted((row for row in own if "kinds" in row), key=lambda row: row["prior_precision"])
        curves.append(Curve(*key, measured, {row["width"]: row for row in own if "width" in row}))
    return curves
