"""Which τ to take of a list, in closed form: all are compared on all data, most of them by combined outputs."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from infoform.predicting.raw_outputs import RawOutputs
from infoform.tuning.choice import smallest_as_good
from infoform.tuning.scorer import Profile, Scorer, plain_outputs
from infoform.tuning.trial_outputs import TrialOutputs

TOLERANCE = 2e-4  # of the score: what a combination may be wrong by
NEAR = 1  # places from a choice to one at which all data were predicted, which may be taken in its stead
CONTENDERS = 4.0  # standard errors from the best, on the part, within which a temperature is searched on all data
REFINEMENTS = 3  # of the part's choice


@dataclass(frozen=True, eq=False)
class Compared:
    """All trials on all data."""

    profiles: list[Profile]  # by trial
    plain: Profile  # the network alone
    exact: frozenset[int]  # places of trials whose outputs were predicted, not combined
    chosen: int
    targets: Tensor

    @classmethod
    def of_every(cls, profiles: list[Profile], plain: Profile, chosen: int, targets: Tensor) -> "Compared":
        """Return trials that were all predicted."""
        return cls(profiles, plain, frozenset(range(len(profiles))), chosen, targets)


@dataclass
class Comparison:
    """Compares the trials of a list of τ, of which a part of the data was predicted."""

    scorer: Scorer
    outputs: TrialOutputs
    part_targets: Tensor
    standard_errors: float
    _scored: dict[int, Profile] = field(default_factory=dict, init=False)  # on all data, by place, where predicted

    def run(self) -> Compared:
        """Predict all data at the τ that matter, and combine the rest, until the choice is one that can be trusted."""
        plain = self.scorer.profile(plain_outputs(self.outputs.of_part(0)), self.part_targets)
        on_part = self._on_part(plain)
        if self.outputs.is_whole or all(profile.terms is None for profile in on_part):
            return Compared.of_every(on_part, plain, self._choice(on_part, plain), self.part_targets)
        exact: dict[int, RawOutputs] = {}
        least = min(on_part, key=lambda profile: profile.score)
        chosen = self._choice(on_part, plain, examples=self.outputs.examples)
        targets, every = self.part_targets, range(len(on_part))
        while True:
            (exact[chosen],), targets = self.outputs.predict_all([chosen])
            if len(exact) == 1:  # the network alone answers alike at every τ
                plain = self.scorer.profile(plain_outputs(exact[chosen]), targets)
            contenders = {place for place in every if _contends(on_part[place], least)} | set(exact)
            profiles, errors = self._on_all(exact, targets, on_part, plain, among=contenders)
            chosen = self._choice(profiles, plain, errors, among=contenders)
            near = sorted(
                (place for place in exact if abs(place - chosen) <= NEAR), key=lambda place: -abs(place - chosen)
            )
            if near and chosen not in exact and chosen not in self.outputs.predicted:  # its error is not known yet
                self.outputs.predict_part([chosen])
                profile, part = self._combined(chosen, exact, targets, on_part, plain, near=profiles[chosen].value)
                errors[chosen] = self._error(chosen, part, profile.value)
            trusted = near and abs(errors.get(chosen, 0.0)) <= TOLERANCE
            if trusted or len(exact) >= self.outputs.most_exact:
                chosen = near[-1] if near else self._choice(profiles, plain, among=exact)
                profiles[chosen] = self._of_exact(chosen, exact[chosen], targets, plain)
                rest, _ = self._on_all(exact, targets, on_part, plain, among=set(every) - contenders, looks=False)
                found = [profiles[place] if place in contenders else rest[place] for place in every]
                return Compared(found, plain, frozenset(exact), chosen, targets)

    def _on_part(self, plain: Profile) -> list[Profile]:
        """Return all trials on the part, which is predicted at every τ where the choice may fall."""
        count, roughly = len(self.outputs.precisions), not self.outputs.is_whole
        known: dict[tuple[int, tuple[int, ...]], Profile] = {}  # by place and what its outputs come from
        implicit = self.outputs.predictor.is_implicit  # then a temperature costs much, and neighbours' are alike
        last: Profile | None = None
        for _ in range(REFINEMENTS):
            keys = [(place, self.outputs.sources(place)) for place in range(count)]
            for key in keys:
                if key not in known:
                    raw, beside = self.outputs.of_part(key[0]), None
                    if implicit and last is not None and last.terms is not None:
                        beside = last.value
                    last = self.scorer.profile(raw, self.part_targets, near=beside, roughly=roughly, plain=plain)
                    known[key] = last
            profiles = [known[key] for key in keys]
            best = min(range(count), key=lambda place: profiles[place].score)
            chosen = self._choice(profiles, plain, examples=self.outputs.examples)
            near = {place + step for place in (best, chosen) for step in (-1, 0, 1)} & set(range(count))
            missing = sorted(near - set(self.outputs.predicted))
            if not missing:
                break
            self.outputs.predict_part(missing)
        return profiles

    def _on_all(
        self,
        exact: Mapping[int, RawOutputs],
        targets: Tensor,
        on_part: Sequence[Profile],
        plain: Profile,
        *,
        among: Collection[int],
        looks: bool = True,
    ) -> tuple[list[Profile], dict[int, float]]:
        """Return trials on all data, and what their combinations add to the score, as far as the part tells.

        Trials that are not asked for stay as they are on the part; `looks` says whether errors are asked for.
        """
        found = list(on_part)
        errors: dict[int, float] = {}
        for place, beside in outward(exact, len(on_part)):
            if place not in among or on_part[place].terms is None:
                continue
            if place in exact:
                found[place] = self._of_exact(place, exact[place], targets, plain)
            else:
                near = found[beside].value
                found[place], part = self._combined(place, exact, targets, on_part, plain, near=near)
                if looks:
                    errors[place] = self._error(place, part, found[place].value)
        return found, errors

    def _of_exact(self, place: int, raw: RawOutputs, targets: Tensor, plain: Profile) -> Profile:
        """Return a trial of which all data were predicted; it is scored once."""
        if place not in self._scored:
            self._scored[place] = self.scorer.profile(raw, targets, plain=plain)
        return self._scored[place]

    def _combined(
        self,
        place: int,
        exact: Mapping[int, RawOutputs],
        targets: Tensor,
        on_part: Sequence[Profile],
        plain: Profile,
        *,
        near: float,
    ) -> tuple[Profile, RawOutputs]:
        """Return a trial on all data by combination, and the outputs of the part, combined likewise."""
        known, least = on_part[place], min(on_part, key=lambda profile: profile.score)
        whole, part = self.outputs.combined(place, exact)
        fixed = None if _contends(known, least) else known.value
        return self.scorer.profile(whole, targets, near=near, value=fixed, plain=plain), part

    def _error(self, place: int, combined: RawOutputs, value: float) -> float:
        """Return what a combination adds to the score, as far as the part tells."""
        guess, truth = (
            self.scorer.profile(raw, self.part_targets, value=value).score
            for raw in (combined, self.outputs.of_part(place))
        )
        return guess - truth

    def _choice(
        self,
        profiles: Sequence[Profile],
        plain: Profile,
        errors: Mapping[int, float] | None = None,
        *,
        among: Collection[int] | None = None,
        examples: int | None = None,
    ) -> int:
        kept = {place: profile for place, profile in enumerate(profiles) if among is None or place in among}
        return place_to_take(kept, plain, self.outputs, self.standard_errors, errors=errors, examples=examples)


def outward(nodes: Collection[int], count: int) -> Iterator[tuple[int, int]]:
    """Give all places from nodes outward, each with a place beside it that came before: itself, for a node."""
    for place in sorted(range(count), key=lambda place: min(abs(place - node) for node in nodes)):
        node = min(nodes, key=lambda one: abs(place - one))
        yield place, place + (node > place) - (node < place)


def place_to_take(
    profiles: Mapping[int, Profile],
    plain: Profile,
    outputs: TrialOutputs,
    standard_errors: float,
    *,
    errors: Mapping[int, float] | None = None,
    examples: int | None = None,
) -> int:
    """Return the place of the trial to take: of the smallest τ that is as good as the best (choice.py).

    Args:
        profiles: trials by place, scored on the same examples.
        plain: the network alone on the same examples.
        outputs: what the trials are of.
        standard_errors: how far from the best a score may be.
        errors: what is known of the errors of scores, by place.
        examples: the number of examples that the standard error is for, where the trials have seen a part of them.
    """
    errors = errors or {}
    places = [place for place, profile in profiles.items() if profile.terms is not None]
    if not places:
        return 0  # none is finite, which whoever scores them says
    # networks that guess, and say so, have a small calibration error
    places = [place for place in places if not profiles[place].guesses(plain)] or places
    scored = [profiles[place].scored(outputs.precisions[place], correction=-errors.get(place, 0.0)) for place in places]
    scored.append(plain.scored(math.inf))
    found = smallest_as_good(scored, standard_errors=standard_errors, seed=outputs.options.seed, examples=examples)
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
