"""The pictures that answers are scored on, and the scores: NLL, ECE, and AUROC of the entropy against unknown pictures.

Curvature is measured on the first training pictures, τ and T are found on the first test pictures, and scores are of
other test pictures; unknown ones are SVHN's. All methods see the same.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from benchmarks.answers.cases import cifar_resnets, read_cifar
from torch import Tensor, nn

CURVATURE, VALIDATION, SCORED, UNKNOWN = 2000, 1000, 2000, 2000
BATCH = 100
Batches = list[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Parts:
    """Scaled pictures in batches, each part for one purpose."""

    curvature: Batches
    validation: Batches
    known: Batches
    unknown: Batches


def read_parts(cifar: Path) -> Parts:
    """Read CIFAR-10 from cifar10.npz, and SVHN from the folder INFOFORM_DATA."""
    from infoform.data import svhn

    strange = svhn.load()
    return Parts(
        _batches(*read_cifar(cifar, "train", slice(CURVATURE))),
        _batches(*read_cifar(cifar, "test", slice(VALIDATION))),
        _batches(*read_cifar(cifar, "test", slice(VALIDATION, VALIDATION + SCORED))),
        _batches(strange.pixels[:UNKNOWN], strange.labels[:UNKNOWN]),
    )


def plain_logits(model: nn.Module, batches: Batches) -> tuple[Tensor, Tensor]:  # -> (N, C), (N,)
    """Return the network's own outputs, and the labels."""
    with torch.no_grad():
        return torch.cat([model(x) for x, _ in batches]), torch.cat([y for _, y in batches])


def save_answers(to: Path, predict: Callable[[Tensor], Tensor | None], parts: Parts) -> None:
    """Keep the probabilities of known and of unknown pictures in a file, for the process that scores them."""
    answers = {"labels": torch.cat([y for _, y in parts.known])}
    with torch.no_grad():
        for name, batches in (("known", parts.known), ("unknown", parts.unknown)):
            found = [predict(x) for x, _ in batches]
            answers[name] = torch.cat([one for one in found if one is not None]).detach()
    torch.save(answers, to)


def score(path: Path) -> dict[str, float]:
    """Return the scores of probabilities that were kept."""
    from infoform import metrics

    answers = torch.load(path)
    known, unknown = (answers[name].clamp_min(1e-12) for name in ("known", "unknown"))
    entropy = [-(probs * probs.log()).sum(1) for probs in (known, unknown)]
    return {
        "accuracy": metrics.accuracy(known, answers["labels"]),
        "nll": metrics.nll(known, answers["labels"]),
        "ece": metrics.ece(known, answers["labels"]),
        "auroc": metrics.ood(*entropy)["auroc"],
    }


def _batches(pixels: Tensor, labels: Tensor) -> Batches:
    images = cifar_resnets().scaled(pixels)
    return list(zip(images.split(BATCH), labels.split(BATCH), strict=True))
