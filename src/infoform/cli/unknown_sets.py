"""How far novelty and uncertainty tell sets of unknown examples from known ones, and the strangest examples."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from infoform.cli.mistakes import Mistake
from infoform.metrics import ood
from infoform.prediction import FALSE_ALARMS
from infoform.records.unknown_sets import RocPoints, ScoreApart, UnknownSet

if TYPE_CHECKING:
    from infoform.prediction import Prediction

BINS = 20  # the last one of novelty holds what is called novel
ROC_POINTS = 200  # at most, in the JSON
SCORES = ("novelty", "entropy", "mutual_information")


def named_sets(given: Sequence[str]) -> dict[str, str]:
    """Return unknown data by their names, from NAME=DATA, or DATA alone, which is then the name."""
    sets: dict[str, str] = {}
    for text in given:
        name, equals, spec = text.partition("=")
        if not equals or Path(text).exists() or "/" in name:
            name, spec = text, text
        if not name or not spec:
            raise Mistake(f"--unknown must be DATA or NAME=DATA, got '{text}'.")
        if name in sets:
            raise Mistake(f"--unknown names '{name}' twice; give each set a name of its own, as in other={spec}.")
        sets[name] = spec
    return sets


def unknown_sets(known: "Prediction", unknown: Mapping[str, "Prediction"]) -> list[UnknownSet] | None:
    """Return how well scores tell unknown sets, by their names, from known data; None without novelty."""
    if known.input_novelty is None:
        return None
    return [
        UnknownSet(
            name=name,
            examples=len(other),
            novel=float(other.novel(FALSE_ALARMS).double().mean()),
            scores={score: _apart(score, known, other) for score in SCORES},
        )
        for name, other in unknown.items()
    ]


def strangest(predicted: "Prediction", count: int) -> list[int]:
    """Return the positions of the most novel examples; of equally novel ones those that more layers find strange."""
    assert predicted.input_novelty is not None
    seen = predicted.input_novelty
    order = seen.layer_strangeness.mean(1).argsort(descending=True, stable=True)
    order = order[seen.strangeness[order].argsort(descending=True, stable=True)]
    places: list[int] = order[:count].tolist()
    return places


def _apart(score: str, known: "Prediction", unknown: "Prediction") -> ScoreApart:
    scores = [_of_examples(score, each) for each in (known, unknown)]
    from_zero = score != "entropy" or known.probs is not None  # the entropy of a number has no zero that means anything
    edges = _edges(torch.cat(scores), whole=score == "novelty", from_zero=from_zero)
    counts = [_counted(each, edges) for each in scores]
    return ScoreApart(**ood(*scores), edges=edges.tolist(), known=counts[0], unknown=counts[1], roc=_roc(*scores))


def _of_examples(score: str, prediction: "Prediction") -> Tensor:  # -> (N,)
    values: Tensor = getattr(prediction, score)
    mean = values if score == "novelty" else prediction.example_mean(values)
    return mean.detach().double().cpu()


def _edges(scores: Tensor, *, whole: bool, from_zero: bool) -> Tensor:  # (N,) -> (BINS + 1,)
    """Return edges of bins of equal width: from 0 to 1 where a score has that range, else those that hold all."""
    least = float(scores.min())
    low, high = (0.0, 1.0) if whole else (min(0.0, least) if from_zero else least, float(scores.max()))
    return torch.linspace(low, max(high, low + 1e-6 * max(1.0, abs(low))), BINS + 1, dtype=torch.float64)


def _counted(scores: Tensor, edges: Tensor) -> list[int]:  # (N,), (BINS + 1,)
    counts: list[int] = torch.bincount(torch.bucketize(scores, edges[1:-1]), minlength=BINS).tolist()
    return counts


def _roc(known: Tensor, unknown: Tensor) -> RocPoints:  # (N,), (M,)
    """Return points of the ROC curve from (0, 0) to (1, 1), evenly along it where there are many."""
    thresholds = torch.cat([known, unknown]).unique().flip(0)  # (T,)
    false, found = (
        torch.cat([torch.zeros(1, dtype=torch.float64), _share_at_least(each, thresholds)]) for each in (known, unknown)
    )
    along = false + found  # rises with every point
    wanted = torch.linspace(0, 2, ROC_POINTS, dtype=torch.float64)
    places = torch.searchsorted(along, wanted - 1e-9).clamp(max=len(along) - 1).unique()
    return RocPoints(false[places].tolist(), found[places].tolist())


def _share_at_least(scores: Tensor, thresholds: Tensor) -> Tensor:  # (N,), (T,) -> (T,)
    below = torch.searchsorted(scores.sort().values, thresholds)
    return 1 - below.double() / len(scores)
