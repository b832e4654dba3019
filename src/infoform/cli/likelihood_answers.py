"""What the command must know of a likelihood: the one place of the command that tells likelihoods apart."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from infoform.cli.mistakes import Mistake
from infoform.likelihoods import Classification, Likelihood, Regression

if TYPE_CHECKING:
    from infoform.prediction import Prediction


def has_class_targets(likelihood: Likelihood) -> bool:
    """Tell whether the target of an example is one class, written as its name or its index."""
    return isinstance(likelihood, Classification)


def with_noise(likelihood: Likelihood, noise: float) -> Likelihood:
    """Return the likelihood with a noise that is known.

    Raises:
        Mistake: where the likelihood has no noise.
    """
    if not isinstance(likelihood, Regression):
        raise Mistake(f"--noise is for regression, got --likelihood {likelihood.name}; leave it out.")
    return Regression(noise)


def plain_prediction(likelihood: Likelihood, predicted: "Prediction") -> "Prediction":
    """Return what the trained network says by itself: its own probabilities, or its mean with the fitted noise."""
    none = torch.zeros_like(predicted.epistemic)
    if predicted.probs is None:
        return replace(predicted, mean=predicted.plain, epistemic=none, samples=None)
    one_of_many = isinstance(likelihood, Classification)
    probs = predicted.plain.softmax(1) if one_of_many else predicted.plain.sigmoid()
    entropies: Tensor = torch.special.entr(probs)
    if not one_of_many:
        entropies = entropies + torch.special.entr(1 - probs)
    entropy = entropies.sum(1).clamp_max(predicted.max_entropy if math.isfinite(predicted.max_entropy) else math.inf)
    return replace(predicted, probs=probs, epistemic=none, aleatoric=probs * (1 - probs), entropy=entropy, samples=None)
