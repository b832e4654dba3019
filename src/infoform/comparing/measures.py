"""Scores of answers as functions of means over examples, so that a bootstrap needs nothing but the terms of each.

To add one, write a function that returns the terms of every example, and a line in `CLASSES` or `NUMBERS`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from infoform.tuning.losses import Answers, accuracy_terms, brier_terms, ece_terms, nll_terms

LEVEL = 0.9  # of the intervals whose coverage and width are told


@dataclass(frozen=True)
class Measure:
    """One score."""

    terms: Callable[[Answers, Tensor], Tensor]  # -> (N, k)
    score: Callable[[Tensor], Tensor]  # means (B, k) -> (B,)


def _sum(means: Tensor) -> Tensor:
    return means.sum(1)


def _absolute(means: Tensor) -> Tensor:
    return means.abs().sum(1)


def _root(means: Tensor) -> Tensor:
    return means.sum(1).sqrt()


def _squares(answers: Answers, targets: Tensor) -> Tensor:
    return (targets.reshape(answers.value.shape) - answers.value).square().mean(1, keepdim=True)


def _standardised(answers: Answers, targets: Tensor) -> tuple[Tensor, Tensor]:
    assert answers.variance is not None
    std = answers.variance.sqrt()
    return (targets.reshape(answers.value.shape) - answers.value) / std, std


def _crps(answers: Answers, targets: Tensor) -> Tensor:
    z, std = _standardised(answers, targets)
    density = torch.exp(-0.5 * z.square()) / math.sqrt(2 * math.pi)
    return (std * (z * torch.erf(z / math.sqrt(2)) + 2 * density - 1 / math.sqrt(math.pi))).mean(1, keepdim=True)


def _quantile() -> float:
    return math.sqrt(2) * float(torch.erfinv(torch.tensor(LEVEL, dtype=torch.float64)))


def _held(answers: Answers, targets: Tensor) -> Tensor:
    z, _ = _standardised(answers, targets)
    return (z.abs() <= _quantile()).double().mean(1, keepdim=True)


def _width(answers: Answers, targets: Tensor) -> Tensor:
    _, std = _standardised(answers, targets)
    return (2 * _quantile() * std).mean(1, keepdim=True)


CLASSES: dict[str, Measure] = {
    "accuracy": Measure(lambda answers, targets: accuracy_terms(answers, targets).values, _sum),
    "nll": Measure(lambda answers, targets: nll_terms(answers, targets).values, _sum),
    "brier": Measure(lambda answers, targets: brier_terms(answers, targets).values, _sum),
    "ece": Measure(lambda answers, targets: ece_terms(answers, targets).values, _absolute),
}
NUMBERS: dict[str, Measure] = {
    "rmse": Measure(_squares, _root),
    "log_likelihood": Measure(lambda answers, targets: -nll_terms(answers, targets).values, _sum),
    "crps": Measure(_crps, _sum),
    "coverage": Measure(_held, _sum),
    "width": Measure(_width, _sum),
}
PRIMARY = {"classes": "nll", "numbers": "log_likelihood"}  # what a recommendation goes by


def calibrated_ece(answers: Answers, *, resamples: int = 200, seed: int = 0) -> float:
    """Return the mean ECE of one-of-C answers that were perfectly calibrated: the confidences draw what is right."""
    confidence = answers.value.amax(1, keepdim=True)  # (N, 1): of the answer that is given
    generator = torch.Generator().manual_seed(seed)
    shape = (resamples, *confidence.shape)
    right = (torch.rand(shape, generator=generator, dtype=torch.float64) < confidence).double()
    return sum(ece_terms(Answers(confidence), one).score() for one in right) / resamples
