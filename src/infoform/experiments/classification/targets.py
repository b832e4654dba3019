"""What a classification experiment is to reach, each as a number and a bound that are read from its rows.

Bounds are the paper's INF (published.py), other methods of the same run, or the project's own aims.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from infoform.experiments.classification.methods import (
    BYTES,
    BYTES_LINEAR,
    DEFAULT,
    EFB,
    KFAC,
    LAST_LAYER,
    PAPERS_INF,
    SAMPLED,
    WEAK_SAMPLED,
)
from infoform.experiments.classification.published import CIFAR10, MNIST
from infoform.records.study_result import Result

Rows = Mapping[str, list[dict[str, Any]]]  # by the key of a method: its measures on every network


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
    """Return the mean of a measure over a method's networks, all of them or the first so many."""
    return float(mean(row[measure] for row in rows[method][:first]))


MNIST_TARGETS: Sequence[Target] = (
    fixed("AUROC of MNIST and notMNIST", "auroc", 0.995, at_least=True, method=DEFAULT),
    fixed("the same, sampled", "auroc", 0.995, at_least=True, method=SAMPLED),
    fixed("entropy on notMNIST", "entropy_unknown", MNIST[PAPERS_INF].entropy, at_least=True, method=DEFAULT),
    fixed("the same, sampled", "entropy_unknown", MNIST[PAPERS_INF].entropy, at_least=True, method=SAMPLED),
    fixed("entropy on MNIST", "entropy", 0.025, at_least=False, method=DEFAULT),
    fixed("the same, sampled", "entropy", 0.025, at_least=False, method=SAMPLED),
    fixed("ECE on MNIST", "ece", MNIST[PAPERS_INF].ece, at_least=False, method=DEFAULT),
    fixed("the same, sampled", "ece", MNIST[PAPERS_INF].ece, at_least=False, method=SAMPLED),
    fixed("sampled with a strength of 1: AUROC", "auroc", 0.995, at_least=True, method=WEAK_SAMPLED),
    fixed(
        "the same: entropy on notMNIST",
        "entropy_unknown",
        MNIST[PAPERS_INF].entropy,
        at_least=True,
        method=WEAK_SAMPLED,
    ),
    against(
        "accuracy: the plain network's less 0.1 %", "accuracy", "plain", at_least=True, slack=-0.001, method=DEFAULT
    ),
    against("AUROC: that of the ensemble", "auroc", "ensemble", at_least=True, method=DEFAULT),
    against("the same by mutual information", "auroc_mutual_information", "ensemble", at_least=True, method=DEFAULT),
    against("NLL: KFAC's", "nll", KFAC, at_least=False, method=DEFAULT),
    against("NLL: EFB's", "nll", EFB, at_least=False, method=DEFAULT),
    memory("bytes: share of KFAC's", "inf activation", "kfac isotropic", 1 / 6),
    memory("the same in bfloat16", "inf activation, bfloat16", "kfac isotropic", 1 / 6),
    memory("the same as bytes", "inf activation, uint8", "kfac isotropic", 1 / 6),
    against("NLL as bytes: KFAC's", "nll", KFAC, at_least=False, method=BYTES),
    against("NLL sampled: KFAC's", "nll", KFAC, at_least=False, method=SAMPLED),
)
CIFAR10_TARGETS: Sequence[Target] = (
    fixed("ECE on CIFAR-10", "ece", CIFAR10[PAPERS_INF].ece, at_least=False, method=DEFAULT),
    fixed("the same, sampled", "ece", CIFAR10[PAPERS_INF].ece, at_least=False, method=SAMPLED),
    against(
        "accuracy: the plain network's less 0.1 %", "accuracy", "plain", at_least=True, slack=-0.001, method=DEFAULT
    ),
    against("the same, sampled", "accuracy", "plain", at_least=True, slack=-0.001, method=SAMPLED),
    against("AUROC: that of the ensemble", "auroc", "ensemble", at_least=True, method=DEFAULT),
    against("the same, sampled", "auroc", "ensemble", at_least=True, method=SAMPLED),
    against("the same, of the last layer alone", "auroc", "ensemble", at_least=True, method=LAST_LAYER),
    against("the same by mutual information", "auroc_mutual_information", "ensemble", at_least=True, method=LAST_LAYER),
    against("NLL: KFAC's", "nll", KFAC, at_least=False, method=DEFAULT),
    against("NLL: EFB's", "nll", EFB, at_least=False, method=DEFAULT),
    against("NLL sampled: KFAC's", "nll", KFAC, at_least=False, method=SAMPLED),
    memory("bytes: share of KFAC's", "inf activation", "kfac isotropic", 1 / 6),
    memory("the same in bfloat16", "inf activation, bfloat16", "kfac isotropic", 1 / 6),
    memory("the same as bytes", "inf activation, uint8", "kfac isotropic", 1 / 6),
    against("NLL as bytes: KFAC's", "nll", KFAC, at_least=False, method=BYTES_LINEAR),
    against("the same: EFB's", "nll", EFB, at_least=False, method=BYTES_LINEAR),
    against("the same, sampled: KFAC's", "nll", KFAC, at_least=False, method=BYTES),
)
