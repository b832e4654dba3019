"""How good outputs are: at the best value of the number that a trial leaves free, or at a given one."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from infoform.likelihoods import Likelihood
from infoform.predicting.implicit_outputs import held_at_once
from infoform.predicting.raw_outputs import RawOutputs
from infoform.prediction import select_examples
from infoform.tuning.choice import Scored
from infoform.tuning.losses import SCORES, TERMS, Answers, Terms, accuracy_terms, with_one_mistake
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
    answers: Answers | None = None  # at that value, where scores are of single examples

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

        Where the network is right on all of the examples, they do not tell how sure it may be: the loss falls for
        ever as the answers get surer. Then one mistake is expected among them; where that cannot be (labels that are
        not one of many, the calibration error), no temperature below 1 is looked at.
        """
        if not _is_finite(raw):
            return Profile(raw, 1.0, None)
        some = None if self._has_own_scores else held_at_once(raw, self.spread.options)
        if value is None and some is not None:  # the temperature is searched on as many examples as can be held
            part = self.profile(select_examples(raw, some), targets[some], near=near, roughly=roughly, plain=plain)
            value = part.value
        answers_at = None if self._has_own_scores else self.spread.over(raw)  # what all values share is computed once
        terms_of = self._by_example(raw, self._terms_of(raw, targets))
        terms_at = self._own_terms(raw, targets) if answers_at is None else lambda one: terms_of(answers_at(one))
        if value is None and self.spread.free == "nothing":
            value = self.spread.temperature
        if value is None:
            least = min(1.0, plain.value) if plain is not None and self.spread.free == "temperature" else 0.0
            if self.spread.free == "temperature" and self._tells_no_mistake(raw, targets):
                least = 1.0
            value = best_temperature(lambda one: terms_at(one).score(), near=near, roughly=roughly, least=least)
        if answers_at is None:
            right = self._right(raw, self.spread.over(raw)(value), targets)
            return Profile(raw, value, terms_at(value), right)
        answers = answers_at(value)
        return Profile(raw, value, terms_of(answers), self._right(raw, answers, targets), answers)

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
        likelihood = self.spread.predictor.likelihood
        return type(likelihood).scores is not Likelihood.scores and not likelihood.tuned_by_density

    def _right(self, raw: RawOutputs, answers: Answers, targets: Tensor) -> Terms | None:
        return accuracy_terms(answers, targets).by_example(raw.examples) if self.objective == "ece" else None

    @staticmethod
    def _by_example(raw: RawOutputs, terms_of: Callable[[Answers], Terms]) -> Callable[[Answers], Terms]:
        """Return what gives the terms of examples, of which rows may be positions: these go together."""
        return lambda answers: terms_of(answers).by_example(raw.examples)

    def _terms_of(self, raw: RawOutputs, targets: Tensor) -> Callable[[Answers], Terms]:
        """Return what gives the terms of answers to these examples."""
        terms_of = TERMS[self.objective]
        if self._expects_a_mistake(raw, targets):
            seconds = raw.plain.topk(2, dim=1).indices[:, 1].to(targets.device)
            return lambda answers: with_one_mistake(terms_of, answers, targets, seconds)
        return lambda answers: terms_of(answers, targets)

    def _own_terms(self, raw: RawOutputs, targets: Tensor) -> Callable[[float], Terms]:
        """Return what gives the terms at a value of the free number, by the scores of a user's likelihood."""
        scores = self.spread.predictor.likelihood.scores

        def whole(value: float) -> Terms:  # as if it were one example
            found = scores(self.spread.prediction(raw, value), targets)[self.objective]
            return Terms(torch.tensor([[found]], dtype=torch.float64))

        return whole

    def _expects_a_mistake(self, raw: RawOutputs, targets: Tensor) -> bool:
        """Whether the examples are all right, and so tell nothing of what it costs to be sure and wrong."""
        one_of_many = self.spread.predictor.likelihood.one_of_many and not self._has_own_scores
        return one_of_many and self.objective != "ece" and all_right(raw.plain, targets)

    def _tells_no_mistake(self, raw: RawOutputs, targets: Tensor) -> bool:
        """Whether the loss falls for ever as answers get surer: all are right, and no mistake can be expected."""
        return all_right(raw.plain, targets) and not self._expects_a_mistake(raw, targets)

    def _scores(self, profile: Profile, targets: Tensor) -> dict[str, float]:
        """Return all scores."""
        likelihood = self.spread.predictor.likelihood
        if not likelihood.has_logits or self._has_own_scores:
            return likelihood.scores(self.spread.prediction(profile.raw, profile.value), targets)
        answers = profile.answers
        assert answers is not None
        return {name: terms_of(answers, targets).score() for name, terms_of in SCORES.items()}


def all_right(outputs: Tensor, targets: Tensor) -> bool:  # (N, C) logits, (N,) classes or (N, C) labels
    """Tell whether the network alone gives the right answer for every example."""
    targets = targets.to(outputs.device)
    right = outputs.argmax(1) == targets if targets.dim() == 1 else (outputs > 0) == (targets > 0.5)
    return bool(right.all())


def plain_outputs(raw: RawOutputs) -> RawOutputs:
    """Return the outputs of the trained network alone."""
    return RawOutputs(raw.plain, samples=raw.plain.unsqueeze(0), examples=raw.examples)


def _is_finite(raw: RawOutputs) -> bool:
    values = raw.covariance if raw.samples is None else raw.samples
    return bool((raw.plain if values is None else values).isfinite().all())
