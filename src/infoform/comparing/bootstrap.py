"""Paired bootstrap: all methods see the same resampled examples, so that what they share does not count."""

from collections.abc import Iterator

import torch
from torch import Tensor

from infoform.comparing.measures import Measure
from infoform.records.compare import Gain

RESAMPLES = 1000
NUMBERS = 2**22  # counts that are held at a time
INSIDE = (0.025, 0.975)


def resampled_counts(examples: int, *, resamples: int, seed: int) -> Iterator[Tensor]:  # (b, N), some at a time
    """Give how often each example occurs in each resampled data set, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    for start in range(0, resamples, step := max(1, NUMBERS // examples)):
        count = min(step, resamples - start)
        drawn = torch.randint(examples, (count, examples), generator=generator)
        counts = torch.zeros(count, examples, dtype=torch.float64)
        yield counts.scatter_add_(1, drawn, torch.ones(1, 1, dtype=torch.float64).expand_as(drawn))


def resampled_scores(measure: Measure, terms: Tensor, *, resamples: int, seed: int) -> Tensor:  # (N, k) -> (B,)
    """Return the score of every resampled data set."""
    counts = resampled_counts(len(terms), resamples=resamples, seed=seed)
    return torch.cat([measure.score(one @ terms / len(terms)) for one in counts])


def gain(value: float, resampled: Tensor, other: float, others: Tensor) -> Gain:  # (B,), (B,)
    """Return a difference of two scores with its interval."""
    low, high = torch.quantile(resampled - others, torch.tensor(INSIDE, dtype=torch.float64)).tolist()
    return Gain(value - other, low, high)


def separations(
    known: Tensor, unknown: Tensor, *, resamples: int, seed: int
) -> tuple[float, float, Tensor]:  # (N,), (M,) -> AUROC, FPR95, AUROC (B,)
    """Return how well a score tells unknown from known examples, and the AUROC of every resampled pair of sets."""
    values, places = torch.cat([known, unknown]).unique(return_inverse=True)
    own, other = places[: len(known)], places[len(known) :]
    ones = torch.ones(1, len(known), dtype=torch.float64), torch.ones(1, len(unknown), dtype=torch.float64)
    known_mass, unknown_mass = _masses(ones[0], own, len(values)), _masses(ones[1], other, len(values))
    pairs = zip(
        resampled_counts(len(known), resamples=resamples, seed=seed),
        _in_step(len(known), resampled_counts(len(unknown), resamples=resamples, seed=seed + 1), resamples),
        strict=True,
    )
    aurocs = [_auroc(_masses(a, own, len(values)), _masses(b, other, len(values))) for a, b in pairs]
    return float(_auroc(known_mass, unknown_mass)), _fpr95(known_mass, unknown_mass), torch.cat(aurocs)


def _in_step(examples: int, counts: Iterator[Tensor], resamples: int) -> Iterator[Tensor]:
    """Give the same counts in the steps in which those of another number of examples come."""
    step, waiting = max(1, NUMBERS // examples), torch.zeros(0)
    for start in range(0, resamples, step):
        wanted = min(step, resamples - start)
        while len(waiting) < wanted:
            more = next(counts)
            waiting = more if len(waiting) == 0 else torch.cat([waiting, more])
        yield waiting[:wanted]
        waiting = waiting[wanted:]


def _masses(counts: Tensor, places: Tensor, size: int) -> Tensor:  # (b, N), (N,) -> (b, size)
    """Return the share of each data set at each value, from the smallest value to the largest."""
    found = torch.zeros(len(counts), size, dtype=torch.float64)
    return found.index_add_(1, places, counts) / counts.sum(1, keepdim=True)


def _auroc(known: Tensor, unknown: Tensor) -> Tensor:  # (b, U), (b, U) -> (b,)
    below = known.cumsum(1) - 0.5 * known
    return (unknown * below).sum(1)


def _fpr95(known: Tensor, unknown: Tensor) -> float:  # (1, U), (1, U)
    found, false = (one.flip(1).cumsum(1).flip(1)[0] for one in (unknown, known))
    return float(false[found >= 0.95 - 1e-12].min())
