"""How good outputs are: at the best value of the number that a trial leaves free, or at a given one."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from infoform.likelihoods import Likelihood
from infoform.predicting.raw_outputs import RawOutputs
from infoform.tuning.choice import Scored
from infoform.tuning.losses import SCORES, TERMS, Terms, accuracy_terms
from infoform.tuning.search import OBJECTIVES, Trial
from infoform.tuning.spread import Spread
from infoform.tuning.temperature import best_temperature


@dataclass(frozen=True, eq=False)
class Profile:
    """Outputs at the best value of their free number."""

    raw: RawOutputs
    value: float  # of the temperature, or the factor of the noise
    terms: Terms | None  # what every example adds to the score; None where outputs are not finite
    right: Terms | None = None  # whether every example was answered rightly, where the score does not ask for that

    def guesses(self, other: "Profile") -> bool:
        """Whether it is right less often than another, by more than a standard error; not known of most scores."""
        if self.right is None or other.right is None:
            return False
        missed = (other.right.values - self.right.values).mean(1)
        return float(missed.mean()) > float(missed.std(correction=0)) / math.sqrt(len(missed))

    @property
    def score(self) -> float:
        """Return the score; infinity where outputs are not finite."""
        return math.inf if self.terms is None else self.terms.score()

    def scored(self, tau: float, *, correction: float = 0.0) -> Scored:
        """Return the trial as a choice sees it."""
        assert self.terms is not None
        return Scored(tau, self.score + correction, self.terms)


@dataclass(frozen=True)
class Scorer:
    """Scores the outputs of trials on the same examples."""

    spread: Spread
    objective: str

    def profile(
        self,
        raw: RawOutputs,
        targets: Tensor,
        *,
        near: float | None = None,
        value: float | None = None,
        roughly: bool = False,
        plain: Profile | None = None,
    ) -> Profile:
        """Return how good outputs are.

        Args:
            raw: outputs of N examples.
            targets: their targets.
            near: a good guess of the best value of the free number.
            value: that value, where it is not to be searched.
            roughly: whether a value near the best will do.
            plain: the network alone on the same examples. A temperature below its own, or below 1, would do nothing but
                undo what too small a τ does, and is not looked at.
        """
        if not _is_finite(raw):
            return Profile(raw, 1.0, None)
        terms_at = self._terms(raw, targets)
        if value is None and self.spread.free == "nothing":
            value = self.spread.temperature
        if value is None:
            least = min(1.0, plain.value) if plain is not None and self.spread.free == "temperature" else 0.0
            value = best_temperature(lambda one: terms_at(one).score(), near=near, roughly=roughly, least=least)
        right = accuracy_terms(self.spread.over(raw)(value), targets) if self.objective == "ece" else None
        return Profile(raw, value, terms_at(value), right)

    def trial(self, profile: Profile, targets: Tensor, *, count: float, tau: float, estimated: bool = False) -> Trial:
        """Return the trial with all its scores; infinity where outputs are not finite."""
        free, noise, value = self.spread.free, self.spread.noise, profile.value
        scores: dict[str, float] = dict.fromkeys(OBJECTIVES, math.inf)
        if profile.terms is not None:
            scores = self._scores(profile, targets)
        return Trial(
            count,
            tau / self.spread.growth(value),
            scores,
            temperature=1.0 if free == "noise" else value,
            noise=value * noise if free == "noise" and noise is not None else None,
            estimated=estimated,
        )

    def check_objective(self, raw: RawOutputs) -> None:
        """Raise where such outputs have no score of the objective."""
        plain = self.spread.prediction(plain_outputs(raw), 1.0)
        if plain.answer == "numbers" and self.objective != "nll" and not self._has_own_scores:
            raise ValueError(f"objective {self.objective!r} is for classification; use 'nll'.")

    @property
    def _has_own_scores(self) -> bool:
        """Whether a user's likelihood has scores of its own, of which no example's share is known."""
        return type(self.spread.predictor.likelihood).scores is not Likelihood.scores

    def _terms(self, raw: RawOutputs, targets: Tensor) -> Callable[[float], Terms]:
        """Return what gives the terms at a value of the free number; what all values share is computed once."""
        if not self._has_own_scores:
            answers, terms_of = self.spread.over(raw), TERMS[self.objective]
            return lambda value: terms_of(answers(value), targets)
        scores = self.spread.predictor.likelihood.scores

        def whole(value: float) -> Terms:  # as if it were one example
            found = scores(self.spread.prediction(raw, value), targets)[self.objective]
            return Terms(torch.tensor([[found]], dtype=torch.float64))

        return whole

    def _scores(self, profile: Profile, targets: Tensor) -> dict[str, float]:
        """Return all scores; of logits without torchmetrics, which takes seconds to import."""
        likelihood = self.spread.predictor.likelihood
        if not likelihood.has_logits or self._has_own_scores:
            return likelihood.scores(self.spread.prediction(profile.raw, profile.value), targets)
        answers = self.spread.over(profile.raw)(profile.value)
        return {name: terms_of(answers, targets).score() for name, terms_of in SCORES.items()}


def plain_outputs(raw: RawOutputs) -> RawOutputs:
    """Return the outputs of the trained network alone."""
    return RawOutputs(raw.plain, samples=raw.plain.unsqueeze(0))


def _is_finite(raw: RawOutputs) -> bool:
    values = raw.covariance if raw.samples is None else raw.samples
    return bool((raw.plain if values is None else values).isfinite().all())
