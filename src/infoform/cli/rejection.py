"""Which inputs to set aside for a person: those less certain, or stranger, than all but a share of known data."""

from typing import TYPE_CHECKING

import torch

from infoform.cli.mistakes import Mistake

if TYPE_CHECKING:
    from infoform.prediction import Prediction


def rejected(predicted: "Prediction", known: "Prediction | None", share: float) -> tuple[list[bool], str]:
    """Return which inputs are to be set aside, and a sentence that tells the rule.

    An input is set aside where its entropy (of numbers: the spread for lack of data) is above that of all but half the
    share of known data, or its novelty above that of all but the other half; so known data lose about the share.
    Without known data novelty alone decides, which is a percentile of known data already.
    """
    if known is None:
        if predicted.input_novelty is None:
            raise Mistake("--reject needs --known data here: this posterior tells no novelty.")
        chosen = predicted.novel(share)
        return chosen.tolist(), _told(int(chosen.sum()), len(chosen), f"their novelty is above {1 - share:g}")
    by_novelty = predicted.input_novelty is not None and known.input_novelty is not None
    part = share / 2 if by_novelty else share
    name = "entropy" if predicted.probs is not None else "epistemic"
    ours, theirs = (_doubt(one) for one in (predicted, known))
    threshold = float(torch.quantile(theirs, 1 - part))
    chosen = ours > threshold
    rule = f"their {name} is above {threshold:.4g}"
    if by_novelty:
        strange = float(torch.quantile(known.novelty.double(), 1 - part))
        chosen = chosen | (predicted.novelty.double() > strange)
        rule += f", or their novelty above {strange:.4g}"
    return chosen.tolist(), _told(
        int(chosen.sum()), len(chosen), f"{rule}: so much sets aside {share:.0%} of known data"
    )


def _doubt(prediction: "Prediction") -> torch.Tensor:  # (N,)
    values = prediction.entropy if prediction.probs is not None else prediction.epistemic.sum(-1)
    return prediction.example_mean(values).detach().double().cpu()


def _told(count: int, examples: int, rule: str) -> str:
    return f"Set aside {count:,} of {examples:,} ({count / examples:.1%}): {rule}."
