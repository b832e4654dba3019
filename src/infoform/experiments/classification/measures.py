"""What a piece of a classification experiment keeps: measures, diagrams, spectra, as JSON can hold them."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from infoform.curvature.curvature import Curvature
from infoform.curvature.eigenbasis import select_pairs
from infoform.metrics import entropy_histogram, evaluate, ood, reliability
from infoform.prediction import Prediction

BINS = 20
DECADES = 12  # of eigenvalues below the largest that a histogram shows


def measures(known: Prediction, targets: Tensor, unknown: Prediction) -> dict[str, Any]:
    """Return scores of known data, entropies of both, how well they are told apart, and two diagrams."""
    assert known.probs is not None
    diagram = reliability(known.probs, targets)
    entropies = {"known": known.normalised_entropy.double(), "unknown": unknown.normalised_entropy.double()}
    scores = evaluate(known, targets)
    del scores["entropy_nats"]  # the paper has shares of the largest entropy
    apart = ood(entropies["known"], entropies["unknown"])
    by_information = ood(known.mutual_information, unknown.mutual_information)["auroc"]
    return {
        **scores,
        "entropy": float(entropies["known"].mean()),
        "entropy_std": float(entropies["known"].std()),
        "entropy_unknown": float(entropies["unknown"].mean()),
        "entropy_unknown_std": float(entropies["unknown"].std()),
        **apart,
        "auroc_mutual_information": by_information,
        "reliability": {
            "confidence": _numbers(diagram.confidence),
            "accuracy": _numbers(diagram.accuracy),
            "count": diagram.count.tolist(),
        },
        "histograms": {name: entropy_histogram(values, bins=BINS).count.tolist() for name, values in entropies.items()},
    }


def complexity(curvature: Mapping[str, Curvature], ranks: Sequence[int]) -> dict[str, dict[str, Any]]:
    """Return, for every layer, its weights N, and L for ranks K: pairs of the paper's grid; ours keeps K itself."""
    table = {}
    for name, layer in curvature.items():
        eigenvalues = layer.bases["activation"].eigenvalues
        kept = {str(rank): len(select_pairs(eigenvalues, rank=rank, support="grid")[0]) for rank in ranks}
        table[name] = {"weights": layer.shape[0] * layer.shape[1], "grid": kept}
    return table


def spectra(curvature: Mapping[str, Curvature], bins: int = 48) -> dict[str, dict[str, Any]]:
    """Return histograms of log10 Λ for every layer; what lies below twelve decades is in the first bin."""
    found = {}
    for name, layer in curvature.items():
        logs = layer.bases["activation"].eigenvalues.double().flatten().clamp_min(1e-300).log10()
        top = float(logs.max())
        counted = torch.histogram(logs.clamp_min(top - DECADES).cpu(), bins, range=(top - DECADES, top))
        found[name] = {"low": top - DECADES, "high": top, "count": [int(count) for count in counted.hist.tolist()]}
    return found


def _numbers(values: Tensor) -> list[float | None]:
    return [None if value != value else value for value in values.tolist()]
