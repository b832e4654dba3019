"""Scores of infoform: novelty with its parts, and entropy and mutual information by a posterior of the last layer."""

from collections.abc import Mapping
from typing import Any

import torch
from benchmarks.novelty.features import Features
from benchmarks.novelty.recorded import Recorded
from torch import Tensor, nn

import infoform

BATCH = 500
MOST_CLASSES = 100  # of networks whose posterior is asked, too: a search over τ with 1,000 outputs takes long
Scores = dict[str, dict[str, Tensor]]  # method -> set of pictures -> (N,), larger for what looks stranger


def score(
    original: nn.Module, last: str, sets: Mapping[str, Features], *, posterior: bool = True
) -> tuple[Scores, dict[str, Any]]:
    """Fit on `train`, tune and calibrate on `validation`, and score every other set, through the public interface.

    Args:
        original: The network.
        last: The name of its last layer.
        sets: What was recorded, by set.
        posterior: Whether entropy and mutual information of the posterior are asked, too, where classes are not many.

    Returns:
        The scores by method and set, and what is to be told of the run.
    """
    model = Recorded(original, last)
    train, validation = (_batches(model, sets[name]) for name in ("train", "validation"))
    laplace = infoform.Laplace(model, "classification", layers="last").fit(train, progress=False)
    posterior = posterior and sets["train"].logits.shape[1] <= MOST_CLASSES
    if posterior:
        laplace.tune(validation, progress=False)
    else:
        laplace.calibrate_novelty(validation, progress=False)
    found: Scores = {}
    for name, features in sets.items():
        if name == "train":
            continue
        told: dict[str, list[Tensor]] = {}
        for rows in model.as_rows(features).split(BATCH):
            one = laplace.novelty(rows)
            told.setdefault("novelty", []).append(one.novelty)
            for part, value in one.novelty_parts.items():
                told.setdefault(f"novelty: {part}", []).append(value)
            if posterior:
                answer = laplace.predict(rows)
                told.setdefault("entropy, last layer", []).append(answer.entropy)
                told.setdefault("mutual information, last layer", []).append(answer.mutual_information)
        for method, values in told.items():
            found.setdefault(method, {})[name] = torch.cat(values).double()
    known = laplace._known
    assert known is not None
    assert known.calibration is not None
    facts = {"temperature": laplace.temperature, "novelty_bytes": known.nbytes, "trust": known.calibration.trust}
    return found, facts


def _batches(model: Recorded, features: Features) -> list[tuple[Tensor, Tensor]]:
    assert features.labels is not None
    return list(zip(model.as_rows(features).split(BATCH), features.labels.split(BATCH), strict=True))
