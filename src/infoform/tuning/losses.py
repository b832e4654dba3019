"""What a search makes least, example by example, so that two trials can be compared on the same examples.

A score is the mean of a loss over examples, or, for the calibration error, a sum over bins of absolute means. Both are
functions of means over examples, so a bootstrap needs nothing but the terms of every example.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from infoform.likelihoods import Likelihood
from infoform.metrics import BINS
from infoform.prediction import Prediction


@dataclass(frozen=True, eq=False)
class Answers:
    """The part of a prediction that it is scored by."""

    value: Tensor  # (N, C): probabilities of classes or labels, or means of numbers
    variance: Tensor | None = None  # (N, C): of numbers
    log_density: Callable[[Tensor], Tensor] | None = None  # of targets, (N,), of a likelihood that has its own

    @classmethod
    def of(cls, prediction: Prediction, likelihood: Likelihood | None = None) -> "Answers":
        """Return what a prediction is scored by; a likelihood with a density of its own is scored by that."""
        numbers = prediction.probs is None
        density = None
        if likelihood is not None and likelihood.own_density and prediction.draws is not None:
            density = partial(likelihood.log_density, prediction)
        return cls(prediction.value, prediction.variance if numbers else None, density)


@dataclass(frozen=True, eq=False)
class Terms:
    """What every example adds to a score."""

    values: Tensor  # (N, k), in float64
    absolute: bool = False  # whether the score is the sum of absolute means, as in the calibration error

    def by_example(self, examples: Tensor | None) -> "Terms":  # (N,)
        """Return the terms of examples of which these are rows, with the same score; None for one row an example."""
        if examples is None or len(examples) == 0:
            return self
        _, places = examples.to(self.values.device).unique(return_inverse=True)
        count = int(places.max()) + 1
        sums = self.values.new_zeros(count, self.values.shape[1]).index_add_(0, places, self.values)
        return Terms(sums * (count / len(self.values)), self.absolute)

    def score(self) -> float:
        """Return the score of all examples."""
        return float(self._of_means(self.values.mean(0, keepdim=True)))

    def resampled(self, counts: Tensor) -> Tensor:  # (B, N) -> (B,)
        """Return the scores of resampled data, in which each example occurs that often."""
        return self._of_means(counts @ self.values / len(self.values))

    def _of_means(self, means: Tensor) -> Tensor:  # (B, k) -> (B,)
        return (means.abs() if self.absolute else means).sum(1)


Objective = Callable[[Answers, Tensor], Terms]


def nll_terms(answers: Answers, targets: Tensor) -> Terms:
    """Return −log p(target) of every example; the mean over labels or numbers where there are several."""
    if answers.log_density is not None:
        return Terms(-answers.log_density(targets).double().unsqueeze(1))
    value = answers.value.double()
    if answers.variance is not None:
        normal = torch.distributions.Normal(value, answers.variance.double().sqrt(), validate_args=False)
        return Terms(-normal.log_prob(targets.reshape(value.shape).to(value)).mean(1, keepdim=True))
    if _one_of_many(value, targets):
        chosen = value.gather(1, targets.long().unsqueeze(1))
    else:
        labels = targets.reshape(value.shape).to(value)
        chosen = torch.where(labels == 1, value, 1 - value)
    least = torch.finfo(answers.value.dtype).tiny
    return Terms(-chosen.clamp_min(least).log().mean(1, keepdim=True))


def brier_terms(answers: Answers, targets: Tensor) -> Terms:
    """Return the squared distance of the probabilities from the answer; summed over classes, averaged over labels."""
    probs = answers.value.double()
    if _one_of_many(probs, targets):
        answer = functional.one_hot(targets.long(), probs.shape[1]).to(probs)
        return Terms((probs - answer).square().sum(1, keepdim=True))
    return Terms((probs - targets.reshape(probs.shape).to(probs)).square().mean(1, keepdim=True))


def ece_terms(answers: Answers, targets: Tensor, *, bins: int = BINS) -> Terms:
    """Return by how much every example is too sure, in the bin of its confidence; averaged over labels."""
    probs = answers.value
    if _one_of_many(probs, targets):
        confidence, label = probs.max(1, keepdim=True)
        right = (label == targets.unsqueeze(1)).double()
    else:
        confidence, right = probs, targets.reshape(probs.shape).double()
    edges = torch.linspace(0, 1, bins + 1, dtype=confidence.dtype, device=confidence.device)
    place = (torch.bucketize(confidence.contiguous(), edges, right=True) - 1).clamp(0, bins - 1)  # (N, L)
    excess = (confidence.double() - right) / confidence.shape[1]
    in_bins = excess.unsqueeze(2) * functional.one_hot(place, bins)  # (N, L, bins)
    return Terms(in_bins.flatten(1), absolute=True)


def accuracy_terms(answers: Answers, targets: Tensor) -> Terms:
    """Return whether every example was answered rightly; of labels how many of them."""
    probs = answers.value
    if _one_of_many(probs, targets):
        return Terms((probs.argmax(1) == targets).double().unsqueeze(1))
    right = (probs > 0.5) == (targets.reshape(probs.shape) > 0.5)
    return Terms(right.double().mean(1, keepdim=True))


def with_one_mistake(terms_of: Objective, answers: Answers, targets: Tensor, seconds: Tensor) -> Terms:  # (N,), (N,)
    """Return the terms of examples among which one more has another class than the network says.

    Of N right answers the next may well be wrong (Laplace's rule of succession). It is as likely to be any of the N,
    and then has the second class: each adds an Nth of what that would cost.

    Args:
        terms_of: the loss.
        answers: predictions of the examples.
        targets: their classes, all of them answered rightly.
        seconds: the second most probable class of each.
    """
    right, wrong = terms_of(answers, targets), terms_of(answers, seconds)
    return Terms(right.values + wrong.values / len(targets), right.absolute)


TERMS: dict[str, Objective] = {"nll": nll_terms, "brier": brier_terms, "ece": partial(ece_terms, bins=BINS)}
SCORES: dict[str, Objective] = {**TERMS, "accuracy": accuracy_terms}  # that a trial of a classifier keeps


def _one_of_many(probs: Tensor, targets: Tensor) -> bool:
    return targets.dim() == 1 and probs.shape[1] > 1
