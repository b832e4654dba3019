"""What the methods of a run answered, cross-fitted: each test picture by a posterior that was tuned on other ones."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from infoform.common.tensor_file import write_tensors
from infoform.comparing.answers import Answered
from infoform.experiments.public_resnets.pictures import Batches, Pictures
from infoform.prediction import Prediction

Predict = Callable[[Tensor], Prediction]
Tune = Callable[[Batches], tuple[Predict, dict[str, Any]]]  # validation pictures -> how to predict, and what was tuned
TUNING = (0, 1)  # folds: the first one tunes for all others, the second one for the first


@dataclass(frozen=True)
class CrossFitted:
    """The answers to all test pictures, in their order, and to unknown pictures by the first of the two posteriors."""

    known: Answered
    first: Tensor  # (N,): whether a test picture was predicted by the posterior that predicted the unknown ones
    unknown: Mapping[str, Answered]
    facts: list[dict[str, Any]] = field(default_factory=list)  # of each tuning

    def save(self, path: Path) -> None:
        """Keep the answers for comparisons with other methods."""
        tensors = {f"known/{name}": value for name, value in self.known.tensors().items()} | {"first": self.first}
        for name, one in self.unknown.items():
            tensors |= {f"unknown/{name}/{key}": value for key, value in one.tensors().items()}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(path, {name: value.contiguous() for name, value in tensors.items()})

    @classmethod
    def load(cls, path: Path) -> "CrossFitted":
        """Read what `save` wrote, without the facts."""
        tensors = load_file(path)
        names = dict.fromkeys(name.split("/")[1] for name in tensors if name.startswith("unknown/"))
        known = Answered.read(_below(tensors, "known/"))
        return cls(known, tensors["first"], {n: Answered.read(_below(tensors, f"unknown/{n}/")) for n in names})


def crossfit(pictures: Pictures, tune: Tune, *, has_spread: bool, slow: bool) -> CrossFitted:
    """Tune on one fold and predict all others and the unknown pictures; tune on another and predict the first.

    Args:
        pictures: The pictures.
        tune: Makes a method ready.
        has_spread: Whether it is more than one network.
        slow: Whether it takes many forward passes a picture.

    Returns:
        The answers.
    """
    fold, parts, facts = pictures.fold, [], []
    unknown: dict[str, Answered] = {}
    for number, other in (TUNING, TUNING[::-1]):
        predict, told = tune(pictures.batches(pictures.test[fold == number]))
        facts.append(told)
        rows = fold != number if number == TUNING[0] else fold == other
        parts.append((rows, _answers(predict, [x for x, _ in pictures.batches(pictures.test[rows])], has_spread)))
        if number == TUNING[0]:
            sets = pictures.unknown(slow=slow)
            unknown = {name: _answers(predict, batches, has_spread) for name, batches in sets.items()}
    return CrossFitted(_merged(parts), parts[0][0], unknown, facts)


def untuned(
    pictures: Pictures, predict: Predict, *, has_spread: bool, slow: bool, facts: dict[str, Any]
) -> CrossFitted:
    """Return the answers of a method that has nothing to tune on test pictures."""
    known = _answers(predict, [x for x, _ in pictures.batches(pictures.test)], has_spread)
    sets = pictures.unknown(slow=slow)
    unknown = {name: _answers(predict, batches, has_spread) for name, batches in sets.items()}
    return CrossFitted(known, torch.ones(len(known), dtype=torch.bool), unknown, [facts])


def _answers(predict: Predict, batches: list[Tensor], has_spread: bool) -> Answered:
    return Answered.joined([Answered.of(predict(batch), has_spread=has_spread) for batch in batches])


def _merged(parts: list[tuple[Tensor, Answered]]) -> Answered:
    """Put answers to some pictures each back into the order of all."""
    order = torch.cat([rows.nonzero()[:, 0] for rows, _ in parts]).argsort()
    joined = Answered.joined([one for _, one in parts])
    return Answered.read({name: value[order] for name, value in joined.tensors().items()})


def _below(tensors: Mapping[str, Tensor], start: str) -> dict[str, Tensor]:
    return {name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)}
