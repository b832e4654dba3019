"""When the conformal calibration of a posterior holds: for the hyperparameters and the predictions it was made for.

Scores of calibration examples are of one function of input and answer. Another τ, temperature, noise or way of
predicting makes another function, for which they promise nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from infoform.conformal import Conformal
from infoform.likelihoods import Likelihood
from infoform.novelty.known_inputs import KnownInputs
from infoform.predicting.predictor import PredictOptions
from infoform.prediction import Prediction

CHANGED = (
    "the prior, the noise, the temperature or another part of the posterior has changed since the calibration, so that "
    "it holds no more"
)
OTHER_POSTERIOR = "it was made with another posterior than the one that was calibrated"
OTHER_VALUES = "the file was loaded on a network with other values than the one that was calibrated"
CHOSEN_ON = "the data that tune chose the prior and the temperature or noise on"


@dataclass(frozen=True, eq=False)
class Guarantee:
    """A conformal calibration, and what it holds for."""

    conformal: Conformal
    hyperparameters: tuple[Any, ...]
    known: KnownInputs | None  # that the novelty of calibration examples was measured by

    def holds_for(self, hyperparameters: tuple[Any, ...]) -> bool:
        """Whether these are the hyperparameters of the calibration."""
        return all(a is b or a == b for a, b in zip(self.hyperparameters, hyperparameters, strict=True))

    def present(self, hyperparameters: tuple[Any, ...], known: KnownInputs | None) -> Conformal | None:
        """Return what holds now: None after a change of hyperparameters, no groups after one of novelty."""
        if not self.holds_for(hyperparameters):
            return None
        return self.conformal if known is self.known else self.conformal.without_novelty()


def made_by(kind: str, options: PredictOptions, likelihood: Likelihood) -> dict[str, Any]:
    """Return the options that a prediction of this kind depends on, by name."""
    found: dict[str, Any] = {"kind": kind}
    if kind == "linear" and likelihood.closed_form:
        return found
    if kind == "linear" and likelihood.has_logits:
        found["link"] = options.link
        if options.link != "mc":
            return found
    return {**found, "samples": options.samples, "seed": options.seed}


def conformal_of(value: Tensor, variance: Tensor | None, targets: Tensor, novelty: Tensor | None) -> Conformal | None:
    """Return the calibration of predictions: of classes or numbers; None for yes/no labels.

    Args:
        value: Probabilities or means, (n, C).
        variance: Of numbers, (n, C).
        targets: As the likelihood's `check_targets` returns them.
        novelty: Of the examples, (n,).
    """
    if variance is not None:
        return Conformal.of_numbers(value, variance.sqrt(), targets, novelty=novelty)
    if targets.dim() == 1 and value.shape[1] > 1:
        return Conformal.of_classes(value, targets, novelty=novelty)
    return None


def attach(
    prediction: Prediction, conformal: Conformal | None, how: Mapping[str, Any], *, otherwise: str
) -> Prediction:
    """Return the prediction with its calibration, or with the reason why there is none for it.

    Args:
        prediction: A prediction.
        conformal: The calibration for the present hyperparameters.
        how: How the prediction was made, as `made_by` says it.
        otherwise: Why there is no calibration, if there is none.
    """
    if conformal is None:
        return replace(prediction, no_conformal=otherwise)
    if conformal.made_by is not None and dict(conformal.made_by) != dict(how):
        return replace(
            prediction,
            no_conformal=f"it was made with {_listed(how)}, and the calibration with {_listed(conformal.made_by)}",
        )
    return replace(prediction, conformal=conformal)


def _listed(how: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in how.items())
