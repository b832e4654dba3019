"""Prediction sets and intervals with a guarantee, as outputs of a graph: a threshold that was found beforehand.

    set     {y : score(x, y) ≤ threshold}, and the most probable class        lower, upper    mean ± threshold · std

The threshold is of the very predictions that the graph makes: from the calibration of `tune` where these are the same,
else from validation data that are run through the graph.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from infoform.conformal import SET_SCORES, Conformal
from infoform.guarantee import made_by
from infoform.likelihoods import Likelihood
from infoform.predicting.kinds import MANY_OUTPUTS
from infoform.predicting.predictor import PredictOptions

SCORE = "adaptive"
MEANINGS = {
    "set": "whether each class is in the prediction set that holds the right class with the guarantee's level",
    "lower": "lower end of the interval that holds the target with the guarantee's level, (batch, outputs)",
    "upper": "upper end of it, (batch, outputs)",
}


class GuaranteedGraph(nn.Module):
    """A graph with prediction sets, or intervals, among its outputs.

    Args:
        graph: gives "probs", or "mean" and "std".
        threshold: of the scores of sets, (), or of deviations in standard deviations, (C,).
    """

    def __init__(self, graph: nn.Module, threshold: Tensor) -> None:
        super().__init__()
        self.inner = graph
        self.register_buffer("threshold", threshold.double())

    def forward(self, *tensors: Tensor) -> dict[str, Tensor]:
        """Return all outputs by name."""
        found: dict[str, Tensor] = self.inner(*tensors)
        assert isinstance(self.threshold, Tensor)
        if "probs" in found:
            return {**found, "set": within(found["probs"], self.threshold)}
        half = self.threshold * found["std"].double()
        ends = {"lower": found["mean"].double() - half, "upper": found["mean"].double() + half}
        return {**found, **{name: end.to(found["mean"].dtype) for name, end in ends.items()}}


def within(probs: Tensor, threshold: Tensor) -> Tensor:  # (N, C), () -> (N, C)
    """Return which classes are in the prediction set; of few classes without sorting them."""
    if probs.shape[1] > MANY_OUTPUTS:
        scores = SET_SCORES[SCORE](probs)
    else:
        wide = probs.double()
        own, other = wide.unsqueeze(2), wide.unsqueeze(1)  # (N, C, 1), (N, 1, C)
        places = torch.arange(probs.shape[1], device=probs.device)
        first = (other > own) | ((other == own) & (places[None, :] < places[:, None]))
        scores = torch.where(first, other, torch.zeros_like(other)).sum(2) - wide
    largest = probs >= probs.amax(1, keepdim=True)
    return (scores <= threshold) | largest


def made_as(kind: str, link: str | None, samples: int, seed: int, likelihood: Likelihood) -> dict[str, Any]:
    """Return how `predict` makes the predictions of a graph with a posterior over the last layer alone."""
    return made_by(kind, PredictOptions(kind, max(1, samples), link or "mc", seed), likelihood)


def find_threshold(
    graph: nn.Module,
    *,
    conformal: Conformal | None,
    how: Mapping[str, Any] | None,
    calibration: Iterable[tuple[tuple[Tensor, ...], Tensor]] | None,
    level: float,
    likelihood: Likelihood,
) -> tuple[Tensor, int] | None:
    """Return the threshold of a level and the number of examples that it rests on; None where there are none.

    Args:
        graph: whose predictions are meant.
        conformal: the calibration of the object, where it has one.
        how: by which options `predict` gives what the graph does; None where it does not.
        calibration: inputs of the graph and targets, where the object's own calibration is of other predictions.
        level: share of sets that are to hold the right class.
        likelihood: what the predictions are for.
    """
    if not likelihood.one_of_many and not likelihood.takes_noise:
        return None  # yes/no labels have no sets
    if conformal is None or how is None or conformal.made_by is None or dict(conformal.made_by) != dict(how):
        conformal = None if calibration is None else _calibrated(graph, calibration)
    if conformal is None:
        return None
    if conformal.classes is not None:
        return torch.tensor(conformal.threshold(level, score=SCORE), dtype=torch.float64), conformal.count
    ones = torch.ones(1, conformal.num_outputs, dtype=torch.float64)
    _, upper = conformal.interval(torch.zeros_like(ones), ones, level)
    return upper[0], conformal.count


def _calibrated(graph: nn.Module, calibration: Iterable[tuple[tuple[Tensor, ...], Tensor]]) -> Conformal:
    found: dict[str, list[Tensor]] = {}
    targets = []
    with torch.no_grad():
        for tensors, target in calibration:
            targets.append(target)
            for name, one in graph(*tensors).items():
                found.setdefault(name, []).append(one)
    every, right = {name: torch.cat(parts) for name, parts in found.items()}, torch.cat(targets)
    if "probs" in every:
        return Conformal.of_classes(every["probs"], right)
    return Conformal.of_numbers(every["mean"], every["std"], right)
