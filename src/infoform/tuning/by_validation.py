"""Tuning on validation data: τ is searched together with the temperature of logits, or with the noise of a regression.

Each τ is scored at its best temperature (spread.py), and the network alone at its own best one stands beside all τ: a
posterior that is no better than that buys nothing for these data. Of all τ that are as good as the best, as far as the
data can tell, the smallest is taken (choice.py), since it keeps most uncertainty for inputs unlike the data.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils.data import DistributedSampler

from infoform.common.progress import progress_bar
from infoform.common.same_work import Identity
from infoform.likelihoods.positions import as_rows
from infoform.network.batches import Batch, batch_size, device_of
from infoform.posteriors.network_posterior import Posterior
from infoform.predicting.over_loader import outputs_under
from infoform.predicting.predictor import Predictor
from infoform.predicting.raw_outputs import RawOutputs
from infoform.tuning.choice import NEGLIGIBLE
from infoform.tuning.comparison import Compared, Comparison
from infoform.tuning.halving import Round, halve, rounds
from infoform.tuning.kept_outputs import KeptOutputs, LastingTrials, outputs_beside
from infoform.tuning.losses import Answers
from infoform.tuning.sampled_comparison import SampledComparison
from infoform.tuning.scorer import Profile, Scorer, plain_outputs
from infoform.tuning.search import Found, Search, Trial, best_trial
from infoform.tuning.trial_outputs import NO_TARGETS, TrialOutputs
from infoform.tuning.validation_data import ValidationData, every_nth
from infoform.tuning.widening import improving_end, widened

Result = TypeVar("Result")
AS_GOOD = 0.01  # of a score: the network alone, and a posterior that is next to nothing


@dataclass(frozen=True)
class Tuned:
    """What a search on validation data has found."""

    trials: list[Trial]
    best: Trial  # of the least score, or the smallest τ that is as good
    plain: Trial  # the network alone at its best temperature or noise
    note: str = ""  # what a user should know of the choice
    answers: Answers | None = None  # to all data at the choice, where the search has predicted them there
    targets: Tensor | None = None
    examples: Tensor | None = None  # of every row of these, where rows are positions


@dataclass
class Part:
    """Validation data that pairs (N, τ) are scored on, and the network alone on them, once it is known."""

    batches: list[Batch]
    sampler: DistributedSampler[Any] | None
    is_whole: bool = True
    plain: Profile | None = None
    plain_trial: Trial | None = None

    @property
    def examples(self) -> int:
        """Return the number of examples."""
        return sum(map(batch_size, self.batches))


@dataclass(frozen=True)
class ValidationSearch:
    """A search over τ (and N) on validation data."""

    data: ValidationData
    predictor: Predictor
    build: Callable[[float, float], Posterior]  # of a pair (N, τ)
    scorer: Scorer
    search: Search
    standard_errors: float
    exact_trials: int | None = None  # at how many τ, at most, all data are predicted
    widens: bool = False  # whether a grid goes on beyond its range, where the score still improves at an end

    def run(self, *, progress: bool) -> Tuned:
        """Return all trials and the one to take; warn the caller's caller if the best is at an end of the range."""
        precisions = self.search.precisions
        compared = None
        with progress_bar(progress) as bar:
            if precisions is not None:
                found, compared = self._listed(precisions, bar)
            elif self.search.method == "halving":
                found = self._by_halving(bar("trials", None), bar("predict", None))
            else:
                found = self._one_by_one(bar("trials", self.search.trials), bar("predict", None))
        assert found.plain is not None
        assert found.chosen is not None
        best = found.trials[found.chosen]
        tuned = Tuned(found.trials, best, found.plain, self._note(found))
        if compared is None or self._has_other_networks(best):
            return tuned
        profile = compared.profiles[compared.chosen]
        answers = self.scorer.spread.over(profile.raw)(profile.value)
        return replace(tuned, answers=answers, targets=compared.targets, examples=profile.raw.examples)

    def _listed(
        self, precisions: list[float], bar: Callable[[str, int | None], Callable[[int], None]]
    ) -> tuple[Found, Compared | None]:
        """Search τ alone, at a given N."""
        earlier = self.search.read()
        path = self.search.path
        lasts = isinstance(path, LastingTrials)
        if earlier.chosen is not None and not (lasts and path is not None and outputs_beside(path).exists()):
            return earlier, None
        count, first = self.search.num_data[0], precisions
        compared, kept = self._compared(precisions, bar)
        if self.widens and (side := improving_end(compared.profiles, compared.plain)):
            precisions = widened(precisions, side)
            compared, kept = self._compared(precisions, bar)
        trials = [
            self.scorer.trial(profile, compared.targets, count=count, tau=tau, estimated=place not in compared.exact)
            for place, (tau, profile) in enumerate(zip(precisions, compared.profiles, strict=True))
        ]
        best_trial(trials, self.search.objective)  # or say that there is none
        plain = self.scorer.trial(compared.plain, compared.targets, count=math.inf, tau=math.inf)
        trials[compared.chosen] = self._exactly(trials[compared.chosen], compared)
        beyond = None if precisions is first else (precisions[0], precisions[-1])
        self.search.write(trials, plain=plain, chosen=compared.chosen, widened=beyond)
        if not lasts:
            kept.remove()
        return Found(trials, plain, compared.chosen, beyond), compared

    def _compared(
        self, precisions: list[float], bar: Callable[[str, int | None], Callable[[int], None]]
    ) -> tuple[Compared, KeptOutputs]:
        """Compare all τ of a list, and return what was predicted for that."""
        count, options = self.search.num_data[0], self.scorer.spread.options
        identity = Identity({**self.search.identity.values, "precisions": precisions})
        device = device_of(self.predictor.model)
        kept, batches = KeptOutputs.beside(self.search.path, identity, device=device), self.data.on(device)
        outputs = TrialOutputs(
            self.predictor,
            lambda tau: self.build(count, tau),
            precisions,
            batches,
            self.data.sampler,
            options,
            kept,
            self.exact_trials,
        )
        outputs.tick = bar("tune: part" if not outputs.is_whole else "tune", None)
        _, part_targets = self._checked(*self._readable(lambda: outputs.predict_part(outputs.coarse), batches))
        outputs.tick = bar("tune", None) if not outputs.is_whole else outputs.tick
        comparison = Comparison if options.kind == "linear" else SampledComparison
        return comparison(self.scorer, outputs, part_targets, self.standard_errors).run(), kept

    def _exactly(self, trial: Trial, compared: Compared) -> Trial:
        """Return the trial with the scores of its own noise, which networks that are not linear have to be run for."""
        spread = self.scorer.spread
        if not self._has_other_networks(trial):
            return trial
        assert trial.noise is not None
        assert spread.noise is not None
        count = trial.num_data / spread.growth(trial.noise / spread.noise)
        posterior = self.build(count, trial.prior_precision)
        batches = self.data.on(device_of(self.predictor.model))
        (raw,), _ = outputs_under(self.predictor, [posterior], batches, spread.options, sampler=self.data.sampler)
        prediction = self.predictor.from_outputs(raw, spread.options, noise=trial.noise)
        return replace(trial, scores=self.predictor.likelihood.scores(prediction, compared.targets))

    def _has_other_networks(self, trial: Trial) -> bool:
        """Whether the noise of a trial makes other sampled networks than those that were run for it."""
        spread = self.scorer.spread
        return trial.noise is not None and spread.noise is not None and spread.options.kind == "mc"

    def _one_by_one(self, tick: Callable[[int], None], within: Callable[[int], None]) -> Found:
        """Search pairs (N, τ) of which the next depends on the last, or of several N: each is a prediction."""
        every = self._every()
        trials = self.search.run(lambda count, tau: self._scored(count, tau, every, tick=within), tick)
        return self._best_of(trials, every)

    def _by_halving(self, tick: Callable[[int], None], within: Callable[[int], None]) -> Found:
        """Search pairs (N, τ) that are dropped after a part of the data, but for the best."""
        every, options = self._every(), self.scorer.spread.options
        plan = rounds(pairs=self.search.trials, examples=every.examples, samples=options.samples)
        parts = {one.step: self._part(every, one.step) for one in plan}
        if self.data.sampler is None:  # before hundreds of predictions of parts, which may lack a class
            self._check_plain(every.batches)

        def score(count: float, tau: float, current: Round) -> Trial:
            part = parts[current.step]
            samples = None if options.kind == "linear" else current.samples
            trial = self._scored(count, tau, part, samples=samples, tick=within)
            tick(1)
            return trial if current.step == 1 else replace(trial, examples=part.examples)

        objective, done = self.search.objective, self.search.read().trials
        trials = halve(score, self.search.pairs, plan, objective=objective, done=done, keep=self.search.write)
        return self._best_of(trials, every)

    def _every(self) -> "Part":
        return Part(self.data.on(device_of(self.predictor.model)), self.data.sampler)

    def _part(self, every: "Part", step: int) -> "Part":
        """Return every `step`-th example; all of them where they cannot be cut."""
        some = every_nth(every.batches, step) if step > 1 and self.data.sampler is None else None
        return every if some is None else Part(some, None, is_whole=False)

    def _scored(
        self,
        count: float,
        tau: float,
        part: "Part",
        *,
        samples: int | None = None,
        tick: Callable[[int], None] | None = None,
    ) -> Trial:
        """Return the trial of a pair on a part of the data, or on all."""
        options = self.scorer.spread.options
        options = options if samples is None else replace(options, samples=samples)
        posterior = self.build(count, tau)
        under = partial(outputs_under, self.predictor, [posterior], part.batches, options)
        predict = partial(under, sampler=part.sampler, tick=tick)
        (raw,), targets = self._readable(predict, part.batches)
        if part.is_whole:
            _, targets = self._checked(raw, targets)
        assert targets is not None
        if part.plain is None:
            part.plain = self.scorer.profile(plain_outputs(raw), targets)
            part.plain_trial = self.scorer.trial(part.plain, targets, count=math.inf, tau=math.inf)
        profile = self.scorer.profile(raw, targets, plain=part.plain)
        return self.scorer.trial(profile, targets, count=count, tau=tau)

    def _best_of(self, trials: list[Trial], every: "Part") -> Found:
        best = best_trial(trials, self.search.objective)
        if every.plain_trial is None:  # all trials were there from before
            self._scored(best.num_data, best.prior_precision, every)
        return Found(trials, every.plain_trial, trials.index(best))

    def _readable(self, predict: Callable[[], Result], batches: list[Batch]) -> Result:
        """Return what `predict` does; where it fails since the network cannot take the inputs, say so."""
        try:
            return predict()
        except RuntimeError:
            try:
                self.predictor.outputs(batches[0])
            except RuntimeError as error:
                shapes = ", ".join(str(tuple(one.shape)) for one in batches[0].tensors())
                raise ValueError(
                    "validation inputs must be such as the network takes, and it fails on the first batch, of shape "
                    f"{shapes} ({str(error).splitlines()[0]}); give data of the form that it was trained on."
                ) from error
            raise

    def _check_plain(self, batches: list[Batch]) -> None:
        """Look at outputs and targets of the network alone."""
        outputs = [self._readable(partial(self.predictor.outputs, batch), [batch]) for batch in batches]
        targets = _targets(batches)
        if all(one.dim() < 3 for one in outputs):
            self._checked(RawOutputs(torch.cat(outputs)), targets)
            return
        likelihood, found = self.predictor.likelihood, []
        for batch, one in zip(batches, outputs, strict=True):
            if batch.targets is None:
                raise ValueError(NO_TARGETS)
            own = likelihood.row_targets(likelihood.arrange_targets(batch.targets, one), one)
            assert own.targets is not None
            found.append((own.of(as_rows(one)), own.targets))
        self._checked(RawOutputs(torch.cat([one for one, _ in found])), torch.cat([one for _, one in found]))

    def _checked(self, outputs: RawOutputs, targets: Tensor | None) -> tuple[RawOutputs, Tensor]:
        if targets is None:
            raise ValueError(NO_TARGETS)
        bad = int((~outputs.plain.isfinite()).any(1).sum())
        if bad:
            raise ValueError(
                f"the network's outputs must be finite on validation data, got others for {bad} of {len(targets)} "
                "inputs; look for missing values (NaN) in the data."
            )
        self.predictor.likelihood.check_validation(targets)
        self.scorer.check_objective(outputs)
        return outputs, targets

    def _note(self, found: Found) -> str:
        """Say what a user should know of the choice; warn where the range of τ was too narrow."""
        objective, trials, plain = self.search.objective, found.trials, found.plain
        search = self.search if found.widened is None else replace(self.search, prior_precision=found.widened)
        assert plain is not None
        assert found.chosen is not None
        best, chosen = best_trial(trials, objective), trials[found.chosen]
        notes: list[str] = []
        if found.widened is not None:
            low, high = found.widened
            notes.append(
                f"The {objective} still improved at an end of the range of τ, now widened to {low:.3g}–{high:.3g}."
            )
        least = min(best.scores[objective], plain.scores[objective])
        alone = plain.scores[objective] <= best.scores[objective]
        if alone:
            what = {"temperature": "A temperature alone", "noise": "The network alone, with the best noise,"}
            notes.append(
                f"{what.get(self.scorer.spread.free, 'The network alone')} has {objective} "
                f"{plain.scores[objective]:.4g} on these data, and the best posterior {best.scores[objective]:.4g}: "
                f"the posterior does not improve the {objective} here."
            )
        # the upper end of a range that has room below comes near to the network alone, which is as far as it goes
        near = best.scores[objective] - least <= AS_GOOD * abs(least) and search.prior_precision[0] < 1
        # where a smaller τ within the range was taken, what lies beyond the best one decides nothing
        ends = [search.at_edge(self._searched(one)) for one in (best, chosen)]
        if all(ends) and not (alone and near):
            warnings.warn(
                f"the best prior_precision, {best.prior_precision:.3g}, is at an end of the searched range "
                f"{search.prior_precision}; search a wider one.",
                stacklevel=5,
            )
        if chosen is not best:
            notes.append(
                f"τ = {chosen.prior_precision:.3g} was taken, with {objective} {chosen.scores[objective]:.4g}: no "
                f"smaller τ is within {self.standard_errors:g} standard error(s) or {NEGLIGIBLE:g} of the best, "
                f"{least:.4g}, and a smaller τ keeps more uncertainty for inputs unlike these."
            )
            if search.at_edge(self._searched(chosen)):
                notes.append(
                    "It is the smallest of the range: these data cannot tell how small it may be; more of them can."
                )
        return " ".join(notes)

    def _searched(self, trial: Trial) -> float:
        """Return the τ of the range that a trial stands for: its own, before a noise that was found divided it."""
        spread = self.scorer.spread
        if spread.free != "noise" or trial.noise is None or spread.noise is None:
            return trial.prior_precision
        return trial.prior_precision * spread.growth(trial.noise / spread.noise)


def _targets(batches: list[Batch]) -> Tensor | None:
    """Return the targets, where every batch has them and they are one an example."""
    given = [batch.targets for batch in batches if batch.targets is not None]
    if not batches or len(given) < len(batches) or len({one.shape[1:] for one in given}) > 1:
        return None
    return torch.cat(given)
