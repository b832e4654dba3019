"""Why an input is worth its label: what the network would answer, and what it wavers between."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from infoform.acquisition import Acquisition
    from infoform.prediction import Prediction

TOLD = 0.5  # share of a score that earlier choices must tell to be worth a word


def describe_choice(found: "Acquisition", classes: Sequence[str] | None) -> dict[str, list[Any]]:
    """Return score, answer and reason of each chosen input, as columns of a table."""
    answers, reasons = [], []
    for place in range(len(found.positions)):
        answer, reason = _answer(found.prediction, place, classes)
        told = 1 - float(found.scores[place] / found.alone[place]) if float(found.alone[place]) > 0 else 0.0
        if told >= TOLD:
            reason += f"; the labels before it would tell {told:.0%} of that"
        answers.append(answer)
        reasons.append(reason)
    return {"score": found.scores.tolist(), "answer": answers, "reason": reasons}


def _answer(prediction: "Prediction", place: int, classes: Sequence[str] | None) -> tuple[str, str]:
    """Return what is predicted, and why that is uncertain."""
    if prediction.probs is None:
        assert prediction.mean is not None
        mean, spread = prediction.mean[place], prediction.epistemic[place].sqrt()
        shown = ", ".join(f"{value:.4g}" for value in mean.tolist())
        off = ", ".join(f"{value:.3g}" for value in spread.tolist())
        return shown, f"may be off by {off} for lack of data"
    probs = prediction.probs[place]
    names = classes or [str(index) for index in range(len(probs))]
    if prediction.answer == "labels":
        near = int((probs - 0.5).abs().argmin())
        yes = ", ".join(names[index] for index in (probs > 0.5).nonzero()[:, 0].tolist()) or "none"
        return yes, f"{names[near]} is {float(probs[near]):.0%} likely"
    first, second = probs.argsort(descending=True)[:2].tolist()
    between = f"{names[first]} {float(probs[first]):.0%} or {names[second]} {float(probs[second]):.0%}"
    entropy = float(prediction.entropy[place])
    share = float(prediction.mutual_information[place]) / entropy if entropy > 0 else 0.0
    return names[first], f"{between}; {share:.0%} of the doubt is for lack of data"
