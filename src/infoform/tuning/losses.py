"""What a search makes least, example by example, so that two trials can be compared on the same examples."""

from collections.abc import Callable

import torch
from torch import Tensor

from infoform.prediction import Prediction

Losses = Callable[[Prediction, Tensor], Tensor]


def nll_losses(prediction: Prediction, targets: Tensor) -> Tensor:  # -> (N,)
    """Return −log p(target) of every example; of labels their mean."""
    probs = _of_answers(prediction, targets)
    return -probs.clamp_min(torch.finfo(probs.dtype).tiny).log().mean(1)


def brier_losses(prediction: Prediction, targets: Tensor) -> Tensor:  # -> (N,)
    """Return the squared distance of the probabilities from the answer; summed over classes, averaged over labels."""
    assert prediction.probs is not None
    probs = prediction.probs.double()
    if targets.dim() == 1 and probs.shape[1] > 1:
        answer = torch.nn.functional.one_hot(targets.long(), probs.shape[1]).to(probs)
        return (probs - answer).square().sum(1)
    return (probs - targets.reshape(probs.shape).to(probs)).square().mean(1)


LOSSES: dict[str, Losses] = {"nll": nll_losses, "brier": brier_losses}  # ECE has no value for one example


def _of_answers(prediction: Prediction, targets: Tensor) -> Tensor:  # -> (N, 1) or (N, labels)
    assert prediction.probs is not None
    probs = prediction.probs.double()
    if targets.dim() == 1 and probs.shape[1] > 1:
        return probs.gather(1, targets.long().unsqueeze(1))
    labels = targets.reshape(probs.shape)
    return torch.where(labels == 1, probs, 1 - probs)
