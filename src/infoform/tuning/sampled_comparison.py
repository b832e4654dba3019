"""Which τ to take of a list, with sampled networks: nearer and nearer, with more and more of them.

    1.  a few networks, a part of the data    every fourth τ; tells how large deviations are at each
    2.  a few networks, all data              at one τ or two; the others follow by the sizes of deviations
    3.  all networks, all data                at one τ or two, likewise; the scores of the others are estimates

Where more τ may be predicted exactly, those beside the best are, until it is the best of its neighbours.

An average over few networks judges small τ, at which they differ most, too harshly, and few examples tell little. So
each step may still move the choice.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from infoform.predicting.raw_outputs import RawOutputs
from infoform.tuning.comparison import Compared, outward, place_to_take
from infoform.tuning.scorer import Profile, Scorer, plain_outputs
from infoform.tuning.trial_outputs import TrialOutputs

ROUNDS = 2  # of a few networks, and of all
NEAR = {False: 1, True: 0}  # places within which a choice is not moved any more


@dataclass
class SampledComparison:
    """Compares the trials of a list of τ, of which a part of the data was predicted by a few networks."""

    scorer: Scorer
    outputs: TrialOutputs
    part_targets: Tensor
    standard_errors: float

    def run(self) -> Compared:
        """Predict all data at the τ that matter; those at others follow."""
        plain = self.scorer.profile(plain_outputs(self.outputs.of_part(0)), self.part_targets)
        rough = not self.outputs.is_whole
        places = range(len(self.outputs.precisions))
        profiles = [
            self.scorer.profile(self.outputs.of_part(place), self.part_targets, roughly=rough, plain=plain)
            for place in places
        ]
        if not rough or all(profile.terms is None for profile in profiles):
            chosen = self._take(profiles, plain)
            return Compared.of_every(profiles, plain, chosen, self.part_targets)
        chosen = self._take(profiles, plain, examples=self.outputs.examples)
        few: dict[int, RawOutputs] = {}
        exact: dict[int, RawOutputs] = {}
        targets = self.part_targets
        for known in (few, exact):
            for _ in range(ROUNDS if known is few else min(ROUNDS, self.outputs.most_exact)):
                if known is few:
                    known[chosen], targets = self.outputs.predict_few(chosen)
                else:
                    (known[chosen],), targets = self.outputs.predict_all([chosen])
                plain = self.scorer.profile(plain_outputs(known[chosen]), targets)
                profiles = self._profiles(profiles, known, targets, plain)
                wanted = self._take(profiles, plain)
                if min(abs(wanted - place) for place in known) <= NEAR[known is exact]:
                    break
                chosen = wanted
            chosen = min(known, key=lambda place: abs(wanted - place)) if known is exact else wanted
        if self.outputs.exact_trials is not None:
            chosen = self._descend(exact, targets, plain)
            profiles = self._profiles(profiles, exact, targets, plain)
        profiles[chosen] = self.scorer.profile(exact[chosen], targets, plain=plain)
        return Compared(profiles, plain, frozenset(exact), chosen, targets)

    def _descend(self, exact: dict[int, RawOutputs], targets: Tensor, plain: Profile) -> int:
        """Predict all data beside the best τ, while there may be more of them; return the place to take of those."""
        known = {place: self.scorer.profile(raw, targets, plain=plain) for place, raw in exact.items()}
        while True:
            best = min(known, key=lambda place: known[place].score)
            beside = [place for place in (best - 1, best + 1) if 0 <= place < len(self.outputs.precisions)]
            missing = [place for place in beside if place not in exact]
            if not missing or len(exact) >= self.outputs.most_exact:
                return place_to_take(known, plain, self.outputs, self.standard_errors)
            (exact[missing[0]],), _ = self.outputs.predict_all(missing[:1])
            known[missing[0]] = self.scorer.profile(exact[missing[0]], targets, plain=plain)

    def _profiles(
        self, before: list[Profile], known: Mapping[int, RawOutputs], targets: Tensor, plain: Profile
    ) -> list[Profile]:
        """Return all trials on all data, those that are not known by their sizes."""
        found: dict[int, Profile] = {}
        for place, beside in outward(known, len(before)):
            if before[place].terms is None:
                found[place] = before[place]
                continue
            raw = known[place] if place in known else self.outputs.combined(place, known)[0]
            near = None if place in known else found[beside].value
            found[place] = self.scorer.profile(raw, targets, near=near, plain=plain)
        return [found[place] for place in range(len(before))]

    def _take(self, profiles: list[Profile], plain: Profile, *, examples: int | None = None) -> int:
        return place_to_take(dict(enumerate(profiles)), plain, self.outputs, self.standard_errors, examples=examples)
