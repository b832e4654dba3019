"""The one number that a trial leaves free besides τ: the temperature of logits, or the noise of a regression.

    logits        p = E softmax(f / T)
    regression    σ' = s σ with cov' = g(s) cov, g(s) = information(σ) / information(σ')          g = s² but for labels

Both widen or narrow all answers at once, and neither needs the network again. A regression's posterior at noise s σ is
that at σ, g times as wide, if τ is divided by g, since P = information(σ) I + τ: τ and σ are searched together so.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from infoform.likelihoods import GaussianOutputs, Likelihood
from infoform.posteriors.network_posterior import Posterior
from infoform.predicting.implicit_outputs import answers_at_temperatures
from infoform.predicting.predictor import PredictOptions, Predictor
from infoform.predicting.raw_outputs import RawOutputs
from infoform.prediction import Prediction
from infoform.tuning.losses import Answers


@dataclass(frozen=True)
class Spread:
    """How outputs become predictions for a value of the free number; 1 leaves everything as it is."""

    predictor: Predictor
    options: PredictOptions
    noise: float | None  # σ that the posteriors of all trials are built with
    fisher: str  # kind of Fisher vectors, on which it depends how information grows with σ
    free: str  # "temperature", "noise" or "nothing"
    temperature: float = 1.0  # of logits, where it is not free

    def over(self, raw: RawOutputs) -> Callable[[float], Answers]:
        """Return what gives the answers for a value; what all values share is computed once."""
        likelihood = self.predictor.likelihood
        if not likelihood.has_logits:
            return lambda value: Answers.of(self.prediction(raw, value), likelihood)
        if raw.samples is not None:
            at = likelihood.answers_at_temperatures(raw.samples)
            return lambda value: Answers(at(value))
        if raw.covariance is None:
            implicit = answers_at_temperatures(raw, likelihood, self.options)
            return lambda value: Answers(implicit(value))
        gaussian, link = self._gaussian(raw), self.options.link
        if link == "mc":
            at = likelihood.answers_at_temperatures(gaussian.draw())
            return lambda value: Answers(at(value))
        return lambda value: Answers(likelihood.answers_from_gaussian(gaussian.at_temperature(value), link=link))

    def prediction(self, raw: RawOutputs, value: float) -> Prediction:
        """Return the whole prediction for a value."""
        if self.free != "noise" or value == 1:
            scaled = replace(self._of(raw), temperature=value)
            return scaled.from_outputs(raw, self.options, noise=self.noise)
        assert self.noise is not None
        growth = self.growth(value)
        root = math.sqrt(growth) if raw.samples is not None else growth
        wider = raw.with_spread(root * raw.spread)
        return self._of(raw).from_outputs(wider, self.options, noise=value * self.noise)

    def growth(self, value: float) -> float:
        """Return g, by which covariances grow and τ shrinks; 1 unless the noise is free."""
        if self.free != "noise":
            return 1.0
        assert self.noise is not None
        scale = self.predictor.likelihood.information_scale
        return scale(self.noise, self.fisher) / scale(value * self.noise, self.fisher)

    def _of(self, raw: RawOutputs) -> Predictor:
        """Return the predictor with the posterior that outputs were found under, where they need it again."""
        if raw.layer is None:
            return self.predictor
        return replace(self.predictor, posterior=Posterior(dict.fromkeys(self.predictor.posterior.layers, raw.layer)))

    def _gaussian(self, raw: RawOutputs) -> GaussianOutputs:
        return GaussianOutputs(raw.plain, raw.covariances, samples=self.options.samples, seed=self.options.seed)


def free_number(likelihood: Likelihood, *, temperature: bool | None, noise: str | None) -> str:
    """Return which number a search leaves free besides τ: "temperature", "noise" or "nothing".

    Args:
        likelihood: What the outputs are for.
        temperature: Whether T is to be searched; None for wherever outputs are logits.
        noise: "validation" if the noise is to be searched, "residuals" if not; None for wherever it is free.

    Raises:
        ValueError: If a temperature is asked for where outputs are no logits, or a noise where it is known.
    """
    if temperature and not likelihood.has_logits:
        raise ValueError(
            f"temperature=True is for logits, and the outputs of the {likelihood.name} likelihood are none; "
            "leave it out."
        )
    if noise == "validation" and not likelihood.free_noise:
        raise ValueError(
            f"noise='validation' is for a noise that is not known, and the {likelihood.name} likelihood has none that "
            "is free; leave it out."
        )
    if likelihood.has_logits:
        return "nothing" if temperature is False else "temperature"
    return "noise" if likelihood.free_noise and noise != "residuals" else "nothing"
