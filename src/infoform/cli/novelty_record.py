"""What `infoform evaluate` measures of novelty, for people and for the report."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from infoform.metrics import ood
from infoform.prediction import FALSE_ALARMS
from infoform.records.novelty import ExampleNovelty, NoveltyResult, RocPoints, ScoreApart, UnknownSet

if TYPE_CHECKING:
    from infoform.prediction import Prediction

BINS = 20  # the last one of novelty holds what is called novel
ROC_POINTS = 200  # at most, in the JSON
SCORES = ("novelty", "entropy", "mutual_information")


def novelty_record(known: "Prediction", unknown: Mapping[str, "Prediction"]) -> NoveltyResult | None:
    """Return how well novelty tells unknown sets, by their names, from known data; None without novelty."""
    if known.input_novelty is None:
        return None
    sets = [
        UnknownSet(
            name,
            len(other),
            _called_novel(other),
            {score: _apart(score, *(getattr(each, score) for each in (known, other))) for score in SCORES},
            {part: _apart("novelty", ours, other.novelty_parts[part]) for part, ours in known.novelty_parts.items()},
        )
        for name, other in unknown.items()
    ]
    return NoveltyResult(FALSE_ALARMS, len(known), _called_novel(known), sets)


def strangest(predicted: "Prediction", count: int) -> list[int]:
    """Return the positions of the most novel examples; of equally novel ones those that more layers find strange."""
    assert predicted.input_novelty is not None
    order = predicted.input_novelty.by_layer.mean(1).argsort(descending=True, stable=True)
    order = order[predicted.novelty[order].argsort(descending=True, stable=True)]
    places: list[int] = order[:count].tolist()
    return places


def example_novelty(predicted: "Prediction", place: int) -> ExampleNovelty | None:
    """Return how novel one example is, and to which layers; None without novelty."""
    if predicted.input_novelty is None:
        return None
    by_layer = {name: float(values[place]) for name, values in predicted.novelty_layers.items()}
    most = max(by_layer.values())
    layers = [name for name, value in by_layer.items() if value == most]
    return ExampleNovelty(float(predicted.novelty[place]), most, layers)


def _called_novel(predicted: "Prediction") -> float:
    return float(predicted.novel(FALSE_ALARMS).double().mean())


def _apart(score: str, known: Tensor, unknown: Tensor) -> ScoreApart:  # (N,), (M,)
    scores = [each.detach().double().cpu() for each in (known, unknown)]
    edges = _edges(torch.cat(scores), whole=score == "novelty")
    counts = [_counted(each, edges) for each in scores]
    return ScoreApart(**ood(*scores), edges=edges.tolist(), known=counts[0], unknown=counts[1], roc=_roc(*scores))


def _edges(scores: Tensor, *, whole: bool) -> Tensor:  # (N,) -> (BINS + 1,)
    """Return edges of bins of equal width: from 0 to 1 where a score has that range, else those that hold all."""
    low, high = (0.0, 1.0) if whole else (min(0.0, float(scores.min())), float(scores.max()))
    return torch.linspace(low, max(high, low + 1e-12), BINS + 1, dtype=torch.float64)


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
