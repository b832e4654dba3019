"""Which method to take, in plain words: the cheapest that no other is shown to be better than by the test data.

Methods are ranked by their negative log-likelihood, which is least for the true probabilities. One is worse than
another if the 95 % interval of the difference, by a paired bootstrap, is above 0. Differences are shares of the NLL of
classes; of numbers they are counted in nats, since the NLL itself depends on the unit of the targets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from infoform.comparing.bootstrap import gain
from infoform.comparing.methods import PLAIN, TEMPERATURE
from infoform.records.compare import Apart, ComparedMethod, Gain, Recommendation
from infoform.records.compare_table import forwards

WORTH = 0.01  # of the score, or nats: a gain below this is none, even if it could be told
UNTOLD = 0.02  # of the score, or nats: a gain above this that cannot be told from chance is worth more test examples
NOTICED = 0.01  # of the AUROC


@dataclass(frozen=True)
class Scored:
    """A method's negative log-likelihood, and that of every resampled data set."""

    value: float
    resampled: Tensor  # (B,)
    of_numbers: bool = False

    @property
    def scale(self) -> float:
        """Return what differences are shares of."""
        return 1.0 if self.of_numbers else abs(self.value)


def recommend(methods: Sequence[ComparedMethod], losses: Mapping[str, Scored], examples: int) -> Recommendation:
    """Return which method to take, and why.

    Args:
        methods: What was found of each, the plain network first.
        losses: Their negative log-likelihoods.
        examples: The number of test examples.
    """
    by_name = {one.name: one for one in methods}
    best = min(losses, key=lambda name: losses[name].value)
    order = sorted(by_name, key=lambda name: _price(by_name[name], list(by_name)))
    # than every other, not than the best alone: the best may be uncertain where a smaller gain of another is sure
    chosen = next(name for name in order if all(_as_good(losses, name, other) for other in losses))
    reason = _reason(by_name, losses, chosen, best, examples)
    return Recommendation(chosen, " ".join([reason, *_noticing(methods, chosen)]))


def _price(one: ComparedMethod, names: list[str]) -> tuple[float, int]:
    """Return what ranks methods by cost: predicting, in steps of a half, then the order of the table."""
    cost = 1.0 if one.name in (PLAIN, TEMPERATURE) else one.cost.predict or 1.0
    return round(2 * cost) / 2, names.index(one.name)


def _as_good(losses: Mapping[str, Scored], name: str, other: str) -> bool:
    """Whether the data do not show a method to be worse than another, or it is worse by next to nothing."""
    more = _more(losses, name, other)
    return more.low <= 0 or more.mean <= WORTH * losses[other].scale


def _more(losses: Mapping[str, Scored], name: str, other: str) -> Gain:
    one, two = losses[name], losses[other]
    return gain(one.value, one.resampled, two.value, two.resampled)


def _reason(
    by_name: Mapping[str, ComparedMethod], losses: Mapping[str, Scored], chosen: str, best: str, examples: int
) -> str:
    more = _more(losses, chosen, best)
    scale = losses[chosen].scale
    undecided = chosen != best and more.low <= 0 and more.mean > UNTOLD * scale
    if undecided and chosen == PLAIN:
        return (
            f"You have too few test examples to tell: {best} has a lower NLL than the plain network by "
            f"{more.mean:.3f}, but with {examples:,} examples that may be chance (95 % interval {more.low:+.3f} to "
            f"{more.high:+.3f}); about {_needed(more, examples):,} would tell."
        )
    if chosen == PLAIN and best == PLAIN:
        return f"Keep the plain network: it has the lowest NLL on these {examples:,} examples."
    if chosen == PLAIN:
        return (
            f"Keep the plain network: on these {examples:,} examples the best of the others, {best}, lowers the NLL by "
            f"no more than {more.mean:.2g} (95 % interval {more.low:+.2g} to {more.high:+.2g})."
        )
    versus = ""
    if chosen != best:
        versus = f" ({best} has {losses[best].value:.4f}, temperature {losses[chosen].value:.4f})"
    if chosen == TEMPERATURE:
        use = "Use temperature, for numbers one noise" if losses[chosen].of_numbers else "Use temperature"
        text = f"{use}: a posterior adds nothing to the NLL on this test set{versus}."
        if best == TEMPERATURE:
            text = f"{use}: it has the lowest NLL on this test set, and costs nothing."
        if undecided:
            text += f" With about {_needed(more, examples):,} test examples a gain of {more.mean:.3f} could be told."
        return text
    said = f"Use {chosen}:"
    own = forwards(by_name[chosen].cost.predict).rstrip("×")
    if chosen != best:
        other = forwards(by_name[best].cost.predict).rstrip("×")
        said += f" as good as {best} here, {own} forwards instead of {other}."
    else:
        reference = TEMPERATURE if TEMPERATURE in losses else PLAIN
        less = _more(losses, chosen, reference)
        said += (
            f" its NLL is lower than that of {reference} by {-less.mean:.3f} (95 % interval {-less.high:.3f} to "
            f"{-less.low:.3f}), for {own} forwards a prediction."
        )
    return said


def _needed(more: Gain, examples: int) -> int:
    """Return about how many examples would tell a difference of this size, rounded up to two digits."""
    half = (more.high - more.low) / 2
    needed = examples * (half / more.mean) ** 2 * 1.1
    step = 10 ** max(0, len(str(int(needed))) - 2)
    return int(-(-needed // step) * step)


def _noticing(methods: Sequence[ComparedMethod], chosen: str) -> list[str]:
    """Return one sentence for each unknown set: what notices it best, if that is better than the plain entropy."""
    said = []
    for name, signs in methods[0].unknown.items():
        if "entropy" not in signs:  # not finite for some example
            continue
        plain = signs["entropy"].auroc
        every: dict[tuple[str, str], Apart] = {
            (one.name, sign): found for one in methods for sign, found in one.unknown[name].items()
        }
        (method, sign), found = max(every.items(), key=lambda item: item[1].auroc)
        sure = found.to_plain is not None and found.to_plain.low > 0 and found.auroc - plain > NOTICED
        if not sure:
            said.append(f"Nothing notices {name} better than the plain network's entropy (AUROC {plain:.3f}).")
            continue
        how = "novelty, which a fit gives to every posterior" if sign == "novelty" else f"{sign.replace('_', ' ')}"
        where = "" if sign == "novelty" or method == chosen else f" of {method}"
        said.append(f"To notice {name}, use {how}{where}: AUROC {found.auroc:.3f}, plain entropy {plain:.3f}.")
    return said
