"""Successive halving: all pairs (N, τ) are scored on a little of the data, the better ones on more, the best on all.

    round    pairs    examples    sampled networks
    1        all      1/10        1/5
    2        1/5      1/4         2/5
    3        1/20     all         all                                                       Jamieson and Talwalkar 2016

A hundred pairs cost nine predictions of all data. A pair that was dropped has the scores of the examples that it saw,
and does not compete with those that saw all of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from infoform.tuning.search import Trial

SHARES = ((1.0, 0.1, 0.2), (0.2, 0.25, 0.4), (0.05, 1.0, 1.0))  # of pairs, examples and networks, round by round
LEAST_EXAMPLES = 10  # of a round
LEAST_PAIRS = 3


@dataclass(frozen=True)
class Round:
    """How many pairs are scored, on every how manieth example, with how many sampled networks."""

    pairs: int
    step: int  # 1: on all examples
    samples: int


def rounds(*, pairs: int, examples: int, samples: int) -> list[Round]:
    """Return the rounds of a search.

    Args:
        pairs: how many are tried.
        examples: of the validation data.
        samples: networks of a prediction.

    Returns:
        Rounds of more and more examples; only the last one where there are too few examples to begin with a part.
    """
    found: list[Round] = []
    for pair_share, example_share, sample_share in SHARES:
        step = max(1, min(round(1 / example_share), examples // LEAST_EXAMPLES))
        kept = min(pairs, max(LEAST_PAIRS, round(pair_share * pairs)))
        current = Round(kept, step, max(1, round(sample_share * samples)))
        if found and found[-1].step == step:
            current = Round(found.pop().pairs, step, current.samples)
        found.append(current)
    return found


def halve(
    score: Callable[[float, float, Round], Trial],
    pairs: Sequence[tuple[float, float]],
    plan: Sequence[Round],
    *,
    objective: str,
    done: Sequence[Trial] = (),
    keep: Callable[[list[Trial]], None] = lambda _: None,
) -> list[Trial]:
    """Score all pairs in the first round, and in each later one the best of those of the round before.

    Args:
        score: the trial of N, τ and a round; the number of its `examples` tells rounds but the last apart.
        pairs: (N, τ).
        plan: the rounds.
        objective: the score that is to be least.
        done: what an interrupted search has kept.
        keep: called with all trials whenever one has been scored.

    Returns:
        One trial for each pair, of the last round that it was in.
    """
    trials = list(done)
    reached = [_round_of(trial, done, len(plan)) for trial in trials]
    for number, current in enumerate(plan):
        if number == 0:
            places = list(range(len(trials), len(pairs)))
        else:
            there = [place for place, last in enumerate(reached) if last >= number]
            waiting = [place for place, last in enumerate(reached) if last == number - 1]
            waiting.sort(key=lambda place: trials[place].scores[objective])
            places = waiting[: max(0, current.pairs - len(there))]
        for place in places:
            trial = score(*pairs[place], current)
            trials[place : place + 1], reached[place : place + 1] = [trial], [number]
            keep(trials)
    return trials


def _round_of(trial: Trial, done: Sequence[Trial], count: int) -> int:
    """Return the round that a trial has reached: the more examples, the later."""
    if trial.examples is None:
        return count - 1
    return sorted({one.examples for one in done if one.examples is not None}).index(trial.examples)
