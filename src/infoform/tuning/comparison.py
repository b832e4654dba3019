"""Which τ to take of a list: all are compared on all data, most of them by combined outputs (see trial_outputs.py)."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from infoform.predicting.raw_outputs import RawOutputs
from infoform.tuning.choice import smallest_as_good
from infoform.tuning.scorer import Profile, Scorer, plain_outputs
from infoform.tuning.trial_outputs import TrialOutputs

TOLERANCE = 2e-4  # of the score: what a combination may be wrong by where the choice falls on it
CONTENDERS = 4.0  # standard errors from the best, on the part, within which a temperature is searched on all data
BELOW = 2  # places below the first choice
REFINEMENTS = 3  # of the part's choice


@dataclass(frozen=True, eq=False)
class Compared:
    """All trials on all data."""

    profiles: list[Profile]  # by trial
    plain: Profile  # the network alone
    exact: frozenset[int]  # places of trials whose outputs were predicted, not combined
    chosen: int
    targets: Tensor


@dataclass
class Comparison:
    """Compares the trials of a list of τ, of which a part of the data was predicted."""

    scorer: Scorer
    outputs: TrialOutputs
    part_targets: Tensor
    standard_errors: float

    def run(self) -> Compared:
        """Predict all data at the τ that matter, and combine the rest, until the choice is one that can be trusted."""
        plain = self.scorer.profile(plain_outputs(self.outputs.of_part(0)), self.part_targets)
        on_part = self._on_part(plain)
        if self.outputs.is_whole or all(profile.terms is None for profile in on_part):
            every = frozenset(range(len(on_part)))
            return Compared(on_part, plain, every, self._choice(on_part, plain), self.part_targets)
        exact: dict[int, RawOutputs] = {}
        least = min(on_part, key=lambda profile: profile.score)
        chosen = self._choice(on_part, plain, examples=self.outputs.examples)
        targets = self.part_targets
        while True:
            for node in self._next_exact(chosen, exact):
                (exact[node],), targets = self.outputs.predict_all([node])
                plain = self.scorer.profile(plain_outputs(exact[node]), targets)
            profiles, errors = self._on_all(exact, targets, on_part, plain)
            contenders = {place for place, profile in enumerate(on_part) if _contends(profile, least)} | set(exact)
            trusted = {place for place in contenders if self._is_trusted(errors.get(place, 0.0))}
            chosen = self._choice(profiles, plain, errors, among=contenders)
            if chosen not in self.outputs.predicted:  # its error is not known yet
                self.outputs.predict_part([chosen])
                errors[chosen] = self._combined(chosen, exact, targets, on_part, plain)[1]
                trusted = trusted if self._is_trusted(errors[chosen]) else trusted - {chosen}
            if chosen not in trusted and len(exact) >= self.outputs.most_exact:
                chosen = self._choice(profiles, plain, errors, among=trusted)
            if chosen in trusted and not (self.outputs.is_sampled and self._next_exact(chosen, exact)):
                profiles[chosen] = self.scorer.profile(profiles[chosen].raw, targets, plain=plain)
                return Compared(profiles, plain, frozenset(exact), chosen, targets)

    def _next_exact(self, chosen: int, exact: Collection[int]) -> list[int]:
        """Return the places at which all data are to be predicted next, as far as there may be more of them."""
        nodes = [chosen]
        if self.outputs.is_sampled and chosen <= min(exact, default=chosen):
            nodes.append(max(0, chosen - BELOW))  # few networks choose too large a τ
        missing = [node for node in dict.fromkeys(nodes) if node not in exact]
        return missing[: max(0, self.outputs.most_exact - len(exact))]

    def _is_trusted(self, error: float) -> bool:
        """Whether a trial with such an error may be taken; few networks of the part do not tell it of many."""
        return abs(error) <= TOLERANCE and (error == 0.0 or not self.outputs.is_sampled)

    def _on_part(self, plain: Profile) -> list[Profile]:
        """Return all trials on the part, which is predicted at every τ where the choice may fall."""
        count, roughly = len(self.outputs.precisions), not self.outputs.is_whole
        for _ in range(REFINEMENTS):
            profiles = [
                self.scorer.profile(self.outputs.of_part(place), self.part_targets, roughly=roughly, plain=plain)
                for place in range(count)
            ]
            best = min(range(count), key=lambda place: profiles[place].score)
            chosen = self._choice(profiles, plain, examples=self.outputs.examples)
            near = {place + step for place in (best, chosen) for step in (-1, 0, 1)} & set(range(count))
            missing = sorted(near - set(self.outputs.predicted))
            if not missing:
                break
            self.outputs.predict_part(missing)
        return profiles

    def _on_all(
        self, exact: Mapping[int, RawOutputs], targets: Tensor, on_part: Sequence[Profile], plain: Profile
    ) -> tuple[list[Profile], dict[int, float]]:
        """Return every trial on all data, and what its combination adds to the score, as far as the part tells."""
        profiles: list[Profile] = []
        errors: dict[int, float] = {}
        for place, known in enumerate(on_part):
            if known.terms is None:
                profiles.append(known)
            elif place in exact:
                profiles.append(self.scorer.profile(exact[place], targets, plain=plain))
            else:
                profile, errors[place] = self._combined(place, exact, targets, on_part, plain)
                profiles.append(profile)
        return profiles, errors

    def _combined(
        self,
        place: int,
        exact: Mapping[int, RawOutputs],
        targets: Tensor,
        on_part: Sequence[Profile],
        plain: Profile,
    ) -> tuple[Profile, float]:
        """Return a trial on all data by combination, and what that adds to the score on the part."""
        known, least = on_part[place], min(on_part, key=lambda profile: profile.score)
        whole, part = self.outputs.combined(place, exact)
        fixed = None if _contends(known, least) else known.value
        profile = self.scorer.profile(whole, targets, near=known.value, value=fixed, plain=plain)
        guess, truth = (
            self.scorer.profile(raw, self.part_targets, value=profile.value).score
            for raw in (part, self.outputs.of_part(place))
        )
        return profile, guess - truth

    def _choice(
        self,
        profiles: Sequence[Profile],
        plain: Profile,
        errors: Mapping[int, float] | None = None,
        *,
        among: Collection[int] | None = None,
        examples: int | None = None,
    ) -> int:
        """Return the place of the trial to take."""
        errors = errors or {}
        places = [
            place
            for place, profile in enumerate(profiles)
            if profile.terms is not None and (among is None or place in among)
        ]
        if not places:
            return 0  # none is finite, which whoever scores them says
        # networks that guess, and say so, have a small calibration error
        places = [place for place in places if not profiles[place].guesses(plain)] or places
        scored = [
            profiles[place].scored(self.outputs.precisions[place], correction=-errors.get(place, 0.0))
            for place in places
        ]
        scored.append(plain.scored(math.inf))
        found = smallest_as_good(
            scored, standard_errors=self.standard_errors, seed=self.outputs.options.seed, examples=examples
        )
        return places[found]


def _contends(profile: Profile, least: Profile) -> bool:
    """Whether a trial may be the best, or as good, as far as a part of the data tells."""
    if profile.terms is None or least.terms is None:
        return False
    differences = (profile.terms.values - least.terms.values).sum(1)
    if len(differences) < 2:
        return True
    error = float(differences.std()) / math.sqrt(len(differences))
    return profile.score - least.score <= CONTENDERS * error + TOLERANCE
