"""Tuning on validation data: every pair (N, τ) of a search is scored by its predictions for the same batches."""

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import reduce
from os import PathLike
from typing import Any

from torch.utils.data import DistributedSampler

from infoform.common.digest import update_digest
from infoform.common.progress import progress_bar
from infoform.common.randomness import isolated
from infoform.network.sharding import distributed_sampler
from infoform.predicting.over_loader import predict_all
from infoform.predicting.predictor import PredictOptions, Predictor
from infoform.tuning.search import OBJECTIVES, Search, Trial, best_trial


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
        return (
            None
            if self.sampler is not None
            else reduce(lambda digest, one: update_digest(one, digest), self.batches, 0)
        )

    def scores(self, predictor: Predictor, options: PredictOptions, *, noise: float | None) -> dict[str, float]:
        """Return every objective; infinity where the predictions are not finite."""
        from infoform.metrics import evaluate

        prediction, targets = predict_all(
            predictor, self.batches, options, noise=noise, sampler=self.sampler, gather=self.sampler is not None
        )
        if targets is None:
            raise ValueError("a search needs targets, and the validation loader gave none; give (x, y) batches.")
        if not bool(prediction.value.isfinite().all()):
            return dict.fromkeys(OBJECTIVES, math.inf)
        return evaluate(prediction, targets)


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
    path: str | PathLike[str] | None,
    settings: Mapping[str, Any],  # what the scores depend on besides the data and how they are predicted
    progress: bool,
) -> tuple[list[Trial], Trial]:
    """Return all trials and the best of them; warn the caller's caller if that is at an end of the range of τ."""
    search = Search(
        objective=objective,
        method=method,
        trials=trials,
        num_data=num_data,
        prior_precision=prior_precision,
        seed=options.seed,
        path=path,
        settings={**settings, "validation": data.checksum, **asdict(options)},
    )
    with progress_bar(progress) as bar:
        found = search.run(
            lambda count, tau: data.scores(predictor(count, tau), options, noise=noise), bar("tune", trials)
        )
    best = best_trial(found, objective)
    if search.at_edge(best):
        warnings.warn(
            f"the best prior_precision, {best.prior_precision:.3g}, is at an end of the searched range "
            f"{prior_precision}; search a wider one.",
            stacklevel=3,
        )
    return found, best
