"""Is this the trained network, on its own data? What a fit counts along the way, and what looks wrong in the counts.

A fit reads all of its data anyway. It counts, by name, sums that add up over batches, processes and updates:

    "2>5"                     examples of class 5 for which output 2 is the largest
    "right", "yes 3"          answers that are right, examples with label 3
    "squares", "y 0", "yy 0"  Σ (y − f)², Σ y and Σ y² of output 0
    "shares"                  examples whose outputs are probabilities already
    "pixels"                  whether inputs are whole numbers from 0 to 255, as raw pixels are
    "tokens"                  whether the labels are the tokens that go in
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from infoform.common.ignored import IGNORED

LEAST = 30  # examples: fewer tell nothing
PIXELS = 50  # raw pixels are brighter than this somewhere
MANY = 128  # classes: with more, wrong answers are not told apart, and count as answer C
FAR_BETTER = 0.2  # share of examples that another order of the classes must gain


class UntrainedWarning(UserWarning):
    """The network does badly on the data of the fit: perhaps another network, other data, or inputs scaled otherwise.

    Args:
        message: What looks wrong.

    Example:
        ```python
        import warnings
        from infoform import UntrainedWarning

        warnings.simplefilter("ignore", UntrainedWarning)  # a random network, on purpose
        ```
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)


def count_classes(outputs: Tensor, targets: Tensor) -> Counter[str]:  # (N, C), (N,)
    """Count which class is answered for which."""
    classes, targets = outputs.shape[1], targets.to(outputs.device)
    answers = outputs.argmax(1)
    if classes > MANY:
        answers = torch.where(answers == targets, answers, classes)
    pairs, counts = (answers * classes + targets).unique(return_counts=True)
    counted = Counter(
        {f"{pair // classes}>{pair % classes}": n for pair, n in zip(pairs.tolist(), counts.tolist(), strict=True)}
    )
    sums_to_one = (outputs.sum(1) - 1).abs() < 1e-3
    return counted + Counter({"shares": int((sums_to_one & (outputs >= 0).all(1)).sum())})


def count_labels(outputs: Tensor, targets: Tensor) -> Counter[str]:  # (N, C), (N, C)
    """Count right answers and labels."""
    yes = targets > 0.5
    between = (outputs >= 0) & (outputs <= 1)
    counted = Counter({"right": int(((outputs > 0) == yes).sum()), "shares": int(between.all(1).sum())})
    return counted + Counter({f"yes {label}": int(count) for label, count in enumerate(yes.sum(0).tolist())})


def count_numbers(outputs: Tensor, targets: Tensor) -> dict[str, float]:  # (N, C), (N, C)
    """Sum squares of errors, and of the targets themselves."""
    sums = {"squares": float((targets - outputs).square().sum())}
    for name, values in (("y", targets.sum(0)), ("yy", targets.square().sum(0))):
        sums |= {f"{name} {output}": value for output, value in enumerate(values.tolist())}
    return sums


def look_like_pixels(inputs: Tensor) -> bool:
    """Tell whether inputs are images of whole numbers from 0 to 255."""
    if inputs.dim() < 3 or not inputs.is_floating_point() or inputs.numel() == 0:
        return False
    low, high = (float(end) for end in inputs.detach().aminmax())
    return low >= 0 and PIXELS < high <= 255 and bool((inputs == inputs.round()).all())


def labels_are_tokens(tokens: object, labels: Tensor | None) -> bool:
    """Tell whether the labels of a batch are its own tokens, as a loader of a causal language model gives them."""
    if not isinstance(tokens, Tensor) or labels is None or tokens.dim() != 2 or labels.shape != tokens.shape:
        return False
    there = labels != IGNORED
    return int(there.sum()) > 1 and bool((labels == tokens.to(labels.device))[there].all())


def add_counts(counts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the sums of several parts of the data."""
    total: dict[str, float] = {}
    for one in counts:
        for name, value in one.items():
            total[name] = total.get(name, 0) + value
    return total


def confusion(counts: Mapping[str, float], classes: int) -> Tensor:  # -> (C + 1, C)
    """Return how many examples of each class (columns) got each answer (rows); the last row: some wrong answer."""
    table = torch.zeros(classes + 1, classes, dtype=torch.float64)
    for name, value in counts.items():
        answer, arrow, label = name.partition(">")
        if arrow:
            table[int(answer), int(label)] = value
    return table


def other_order(table: Tensor) -> list[int] | None:  # (C + 1, C) -> C
    """Return the class that each output answers, where that is another order of the classes and far more often right.

    None where the present order is the right one, or no other is: where two outputs answer the same class best.
    """
    if bool(table[-1].any()):
        return None
    table = table[:-1]
    best = table.argmax(1)
    unused = table.sum(1) == 0
    best[unused] = torch.arange(len(best))[unused]
    if len(best.unique()) < len(best) or bool((best == torch.arange(len(best))).all()):
        return None
    gained = table.amax(1).sum() - table.diagonal().sum()
    order: list[int] = best.tolist()
    return order if gained > FAR_BETTER * table.sum() else None


def barely_better(right: float, chance: float, answers: float) -> bool:
    """Tell whether a share of right answers is within two standard errors of chance, or below it."""
    return right <= chance + 2 * math.sqrt(max(chance * (1 - chance), 1e-12) / answers)


def causes(counts: Mapping[str, float]) -> str:
    """Return what may be wrong where a network does badly on the data of the fit."""
    if counts.get("pixels"):
        return (
            "its inputs are whole numbers up to 255, as raw pixels are; scale them as in training (divide by 255, "
            "subtract a mean, ...)."
        )
    return (
        "check that its trained weights were loaded, that inputs are scaled as in training, and that the labels belong "
        "to these inputs."
    )


def probabilities(function: str, wanted: str) -> str:
    """Return what to say of outputs that are probabilities already."""
    return (
        f"the network's outputs look like probabilities, and infoform takes logits: leave out the last {function} "
        f"(or return {wanted}), since probabilities of probabilities are nearly all the same."
    )
