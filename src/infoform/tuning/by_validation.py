"""Tuning on validation data: every pair (N, τ) of a search is scored by its predictions for the same batches.

Where a temperature is asked for, each pair is scored at its best one, so that τ and T are chosen together, and the
network alone at its best temperature stands beside the pairs: a posterior that is no better than that buys nothing.
"""

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import reduce
from os import PathLike
from typing import Any

from torch import Tensor
from torch.utils.data import DistributedSampler

from infoform.common.digest import update_digest
from infoform.common.progress import progress_bar
from infoform.common.randomness import isolated
from infoform.network.sharding import distributed_sampler
from infoform.predicting.over_loader import outputs_of_all
from infoform.predicting.predictor import PredictOptions, Predictor
from infoform.predicting.raw_outputs import RawOutputs
from infoform.prediction import Prediction
from infoform.tuning.losses import LOSSES
from infoform.tuning.search import OBJECTIVES, Search, Trial, best_trial
from infoform.tuning.temperature import best_temperature


@dataclass(frozen=True)
class ValidationData:
    """The batches of a validation loader, and the sampler that dealt them out to processes, if one did."""

    batches: list[Any]
    sampler: DistributedSampler[Any] | None

    @classmethod
    def read(cls, loader: Iterable[Any], *, seed: int) -> "ValidationData":
        with isolated(seed, loader=loader):
            return cls(list(loader), distributed_sampler(loader))

    @property
    def checksum(self) -> int | None:
        """Return what tells these data from others; None for one process' part of them."""
        if self.sampler is not None:
            return None
        return reduce(lambda digest, batch: update_digest(batch, digest), self.batches, 0)


@dataclass(frozen=True)
class Tuned:
    """What a search on validation data has found."""

    trials: list[Trial]
    best: Trial
    plain: Trial | None  # the network alone at its best temperature, where one was searched
    note: str = ""  # what a user should know of the choice


@dataclass
class Scorer:
    """Scores pairs (N, τ) on the same data."""

    data: ValidationData
    options: PredictOptions
    noise: float | None
    objective: str
    temperature: bool  # whether it is searched
    plain: Trial | None = None

    def score(self, predictor: Predictor) -> tuple[dict[str, float], float]:
        """Return every objective, infinity where predictions are not finite, and the temperature."""
        raw, targets = outputs_of_all(predictor, self.data.batches, self.options, sampler=self.data.sampler)
        if targets is None:
            raise ValueError("a search needs targets, and the validation loader gave none; give (x, y) batches.")
        searched = self.temperature and predictor.likelihood.has_logits
        if searched and self.plain is None:
            self.plain = self._of_plain(predictor, raw, targets)

        def at(temperature: float) -> Prediction:
            return replace(predictor, temperature=temperature).from_outputs(raw, self.options, noise=self.noise)

        chosen = best_temperature(lambda t: self._loss(predictor, at(t), targets)) if searched else 1.0
        prediction = at(chosen)
        if not bool(prediction.value.isfinite().all()):
            return dict.fromkeys(OBJECTIVES, math.inf), chosen
        return predictor.likelihood.scores(prediction, targets), chosen

    def _of_plain(self, predictor: Predictor, raw: RawOutputs, targets: Tensor) -> Trial:
        """Return the network alone at its best temperature, as a trial with an infinite τ."""
        likelihood = predictor.likelihood

        def at(temperature: float) -> Prediction:
            return likelihood.plain_prediction(raw.plain / temperature, noise=None)

        chosen = best_temperature(lambda t: self._loss(predictor, at(t), targets))
        return Trial(math.inf, math.inf, likelihood.scores(at(chosen), targets), chosen)

    def _loss(self, predictor: Predictor, prediction: Prediction, targets: Tensor) -> float:
        if self.objective in LOSSES:
            return float(LOSSES[self.objective](prediction, targets).mean())
        return predictor.likelihood.scores(prediction, targets)[self.objective]


def search_on_validation(
    data: ValidationData,
    predictor: Callable[[float, float], Predictor],  # of a pair (N, τ)
    options: PredictOptions,
    *,
    noise: float | None,
    objective: str,
    method: str,
    trials: int,
    num_data: tuple[float, float],
    prior_precision: tuple[float, float],
    temperature: bool,
    path: str | PathLike[str] | None,
    settings: Mapping[str, Any],  # what the scores depend on besides the data and how they are predicted
    progress: bool,
) -> Tuned:
    """Return all trials and the best of them; warn the caller's caller if that is at an end of the range of τ."""
    search = Search(
        objective=objective,
        method=method,
        trials=trials,
        num_data=num_data,
        prior_precision=prior_precision,
        seed=options.seed,
        path=path,
        settings={
            **settings,
            "validation": data.checksum,
            **({"temperature": True} if temperature else {}),
            **asdict(options),
        },
    )
    scorer = Scorer(data, options, noise, objective, temperature)

    with progress_bar(progress) as bar:
        found = search.run(lambda count, tau: scorer.score(predictor(count, tau)), bar("tune", trials))
        best = best_trial(found, objective)
        if temperature and scorer.plain is None:  # all trials were there from before
            scorer.score(predictor(best.num_data, best.prior_precision))
    if search.at_edge(best):
        warnings.warn(
            f"the best prior_precision, {best.prior_precision:.3g}, is at an end of the searched range "
            f"{prior_precision}; search a wider one.",
            stacklevel=3,
        )
    return Tuned(found, best, scorer.plain, _note(best, scorer.plain, objective))


def _note(best: Trial, plain: Trial | None, objective: str) -> str:
    if plain is None or plain.scores[objective] > best.scores[objective]:
        return ""
    return (
        f"A temperature alone has {objective} {plain.scores[objective]:.4g} on these data, and the best posterior "
        f"{best.scores[objective]:.4g}: the posterior does not improve the {objective} here."
    )
