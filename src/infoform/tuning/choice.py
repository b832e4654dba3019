"""Which of several trials to take: the smallest τ that is as good as the best, as far as the data can tell.

Where the score hardly depends on τ the best trial is a matter of chance, and a large τ erases the uncertainty that a
smaller one keeps for inputs unlike the data. So the smallest τ is taken whose score is within a standard error of the
best one's; the error is that of their difference on the same examples, by a bootstrap over examples. Where a posterior
costs every example a little, that error shrinks as fast as the difference while τ grows, and no τ but the largest would
be within it: a difference below a thousandth counts for nothing, however sure it is. The calibration error is no mean
over examples, and its best itself is taken.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from infoform.tuning.losses import Terms

RESAMPLES = 400
NEGLIGIBLE = 1e-3  # of a mean over examples: a thousandth of a nat is 0.1 % of the right answer's probability


@dataclass(frozen=True, eq=False)
class Scored:
    """A trial as the choice sees it."""

    prior_precision: float  # τ; infinity for the network alone
    score: float
    terms: Terms


def smallest_as_good(
    trials: Sequence[Scored], *, standard_errors: float, seed: int, examples: int | None = None
) -> int:
    """Return the place of the smallest finite τ whose score is within so many standard errors, or a hair, of the best.

    Args:
        trials: With one of a finite τ at least; scores that are not finite do not count.
        standard_errors: How far from the best it may be; 0 for the best itself, as for a score that is not a mean.
        seed: Of the bootstrap.
        examples: The number of examples that the error is for, where the trials have seen a part of them.

    Returns:
        Its place; that of the best finite τ where none is near enough.
    """
    finite = [place for place, trial in enumerate(trials) if math.isfinite(trial.score)]
    best = min(finite, key=lambda place: trials[place].score)
    candidates = sorted(
        (place for place in finite if math.isfinite(trials[place].prior_precision)),
        key=lambda place: trials[place].prior_precision,
    )
    if trials[best].terms.absolute:
        return min(candidates, key=lambda place: trials[place].score)
    counts = _resampled_counts(len(trials[best].terms.values), seed=seed).to(trials[best].terms.values)
    shrink = 1.0 if examples is None else math.sqrt(counts.shape[1] / examples)
    at_best = trials[best].terms.resampled(counts)
    negligible = NEGLIGIBLE if standard_errors > 0 and counts.shape[1] > 1 else 0.0
    for place in candidates:
        error = shrink * float((trials[place].terms.resampled(counts) - at_best).std(correction=0))
        if trials[place].score - trials[best].score <= max(standard_errors * error, negligible):
            return place
    return min(candidates, key=lambda place: trials[place].score)


def check_standard_errors(value: float) -> float:
    """Return how far from the best a choice may be, or raise a ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"standard_errors must be a finite number of at least 0, got {value!r}; 0 takes the best.")
    return float(value)


def _resampled_counts(examples: int, *, seed: int) -> Tensor:  # -> (B, N)
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(examples, (RESAMPLES, examples), generator=generator)
    return torch.zeros(RESAMPLES, examples).scatter_add_(1, drawn, torch.ones(1).expand_as(drawn))
