"""What a classification experiment is to reach, each as a number and a bound that are read from its rows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import mean
from typing import Any

from infoform.records.study_result import Result

Rows = Mapping[str, list[dict[str, Any]]]
DEFAULT = "inf activation:8x30 linear validation"  # all defaults of the library
WIDE = "inf activation:16x30 linear validation"  # with more directions of the prior
SAMPLED = "inf activation:16x30 mc validation"
WEAK_SAMPLED = "inf activation:16 mc validation"  # with a strength of 1
BYTES = "inf@uint8 activation:16x30 mc validation"


@dataclass(frozen=True)
class Target:
    """A number of a run, and the bound it should keep."""

    text: str
    at_least: bool
    methods: tuple[str, ...]  # whose rows it needs
    values: Callable[[Rows, Result], tuple[float, float]]  # the number, the bound


def fixed(text: str, measure: str, bound: float, *, at_least: bool, method: str) -> Target:
    """Return a target with a bound that is known beforehand."""
    return Target(text, at_least, (method,), lambda rows, _: (average(rows, method, measure), bound))


def against(text: str, measure: str, other: str, *, at_least: bool, method: str, slack: float = 0.0) -> Target:
    """Return a target set by another method: its mean over the networks that both have, plus `slack`.

    An ensemble has all networks at once, so it is compared with the mean over all.
    """

    def values(rows: Rows, _: Result) -> tuple[float, float]:
        shared = None if other == "ensemble" else min(len(rows[method]), len(rows[other]))
        return average(rows, method, measure, shared), average(rows, other, measure, shared) + slack

    return Target(text, at_least, (method, other), values)


def memory(text: str, ours: str, other: str, share: float) -> Target:
    """Return the target that ours takes at most this share of another structure's bytes."""

    def values(_: Rows, result: Result) -> tuple[float, float]:
        stored = result.pieces["curvature 0"]["bytes"]
        return stored[ours] / stored[other], share

    return Target(text, False, (), values)


def average(rows: Rows, method: str, measure: str, first: int | None = None) -> float:
    """Return the mean of a measure over a method's networks."""
    return float(mean(row[measure] for row in rows[method][:first]))
