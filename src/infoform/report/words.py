"""Numbers as people read them."""

from collections.abc import Iterable, Sequence
from typing import Any

from infoform.common.bytes import show_bytes

MISSING = "–"
SCORES = {  # name in the JSON -> (name on the page, whether less is better; None: neither, what it says)
    "accuracy": ("right answers", False, "share of examples whose most probable class is the right one"),
    "nll": ("NLL", True, "mean of −log of the probability given to what happened; surprises cost much"),
    "brier": ("Brier score", True, "squared distance of the probabilities from what happened"),
    "ece": ("calibration error", True, "mean gap between confidence and share of right answers"),
    "adaptive_ece": ("calibration error, bins of equal size", True, "the same in bins of equally many examples"),
    "entropy_nats": ("mean entropy (nats)", None, "how spread the probabilities are: 0 is sure, log C has no idea"),
    "entropy": ("mean entropy (share)", None, "of an earlier version: how spread, from 0 (sure) to 1 (no idea)"),
    "rmse": ("RMSE", True, "typical distance of the prediction from the truth, in the target's unit"),
    "log_likelihood": ("log-likelihood", False, "mean log density given to what happened"),
    "crps": ("CRPS", True, "distance of the predicted distribution from what happened, in the target's unit"),
    "coverage_50": ("truths in 50 % intervals", None, "should be 50 %"),
    "coverage_90": ("truths in 90 % intervals", None, "should be 90 %"),
    "coverage_95": ("truths in 95 % intervals", None, "should be 95 %"),
}
SHARES = ("accuracy", "ece", "adaptive_ece", "coverage_50", "coverage_90", "coverage_95")


def percent(share: float | None, digits: int = 1) -> str:
    """Return 91.2 %, with a space that does not break."""
    return MISSING if share is None else f"{100 * share:.{digits}f}\u00a0%"


def number(value: Any, digits: int = 4) -> str:
    """Return a number with so many digits, and anything else as text."""
    if value is None:
        return MISSING
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.{digits}g}"


def score(name: str, value: float | None) -> str:
    """Return a score as the page shows it."""
    if value is None:
        return MISSING
    return percent(value) if name in SHARES else f"{value:.4f}"


def size(count: int | None) -> str:
    return MISSING if count is None else show_bytes(count)


def counted(count: int, singular: str, plural: str = "") -> str:
    """Return 1 example, 2 examples."""
    return f"{count:,}\u00a0{singular if count == 1 else plural or singular + 's'}"


def listed(parts: Iterable[str]) -> str:
    """Return a, b and c."""
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def sure_sentence(level: float, examples: int, right: float | None) -> str:
    """Return what became of the predictions given with some confidence."""
    if right is None:
        return f"No prediction was given with {percent(level, 0)} confidence or more."
    told = f"Of {counted(examples, 'prediction')} given with {percent(level, 0)} confidence or more"
    return f"{told}, {percent(right)} were right."


def precision(value: Any) -> str:
    """Return a prior precision: one number, or one for each layer."""
    if isinstance(value, dict):
        return ", ".join(f"{name}: {number(tau)}" for name, tau in value.items())
    return number(value)


def columns(table: dict[str, Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Return the rows of equally long columns."""
    return list(zip(*table.values(), strict=True))
