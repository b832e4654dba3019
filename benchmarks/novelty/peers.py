"""Scores of pytorch-ood's detectors, fitted on the same recorded features.

The package imports torchvision, whose wheel is made for another build of torch: it lies without its dependences in the
folder `vision` of the peers' environment, and the operators that it declares rules for are declared here first.
"""

import logging
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from benchmarks.novelty.features import Features
from benchmarks.novelty.ours import Scores
from torch import Tensor, nn

VISION = Path(sys.prefix) / "vision"
SUBSPACE = {64: 32, 192: 64, 256: 128, 1024: 512, 1280: 512}  # ViM's d for so many features: half, at most 512
NEIGHBOURS = 50  # of kNN; a twentieth of the features where there are fewer than 5,000


def detectors() -> Any:
    """Return pytorch_ood.detector."""
    if "pytorch_ood" not in sys.modules:
        sys.path.append(str(VISION))
        operators = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        globals()["_operators"] = operators  # they last as long as this object
    import pytorch_ood.detector

    logging.getLogger("pytorch_ood").setLevel(logging.ERROR)
    return pytorch_ood.detector


def fitted(head: nn.Linear, train: Features, validation: Features) -> dict[str, Callable[[Features], Tensor]]:
    """Return the score of each detector, with the package's defaults where it has any."""
    d = detectors()
    assert train.labels is not None
    assert validation.labels is not None
    z, y, width = train.head, train.labels, train.head.shape[1]
    neighbours = NEIGHBOURS if len(z) >= 5000 else max(1, len(z) // 100)
    of_features = {
        "Mahalanobis": d.Mahalanobis(None),
        "relative Mahalanobis": d.RMD(None),
        f"kNN, k = {neighbours}": d.KNN(None, k=neighbours),
        "ViM": d.ViM(None, SUBSPACE.get(width, width // 2), head.weight, head.bias),
        "pNML": d.PNML(None, head),
        "SHE": d.SHE(None, head),
        "fDBD": d.fDBD(None, head),
    }
    for name, detector in list(of_features.items()):
        try:
            detector.fit_features(z, y)
        except ValueError as error:  # SHE wants a right answer of every class
            print(f"pytorch-ood's {name} is left out: {error}", flush=True)
            del of_features[name]
    react = d.ReAct(None, head)
    react.fit_feature_maps(z, y)
    scaling = d.TemperatureScaling(None)
    scaling.fit_logits(validation.logits, validation.labels)
    of_logits = {
        "entropy": d.Entropy(None), "max softmax": d.MaxSoftmax(None), "max logit": d.MaxLogit(None),
        "energy": d.EnergyBased(None), "GEN": d.GEN(None), "temperature": scaling,
    }  # fmt: skip
    return {
        **{name: lambda x, one=one: one.predict_logits(x.logits) for name, one in of_logits.items()},
        "ReAct": lambda x: react.predict_feature_maps(x.head),
        **{name: lambda x, one=one: one.predict_features(x.head) for name, one in of_features.items()},
    }


def score(head: nn.Linear, sets: Mapping[str, Features]) -> Scores:
    """Return the scores of every detector for every set but `train`."""
    with torch.no_grad():
        methods = fitted(head, sets["train"], sets["validation"])
        return {
            name.split(",")[0]: {key: one(x).detach().double() for key, x in sets.items() if key != "train"}
            for name, one in methods.items()
        }
