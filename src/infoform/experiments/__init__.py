"""The paper's tables and figures: to add one, write a file with an `EXPERIMENT` and a line in `EXPERIMENTS`.

    python -m infoform.experiments NAME [--quick | --full] [--out DIR] [--page DOCS]

An experiment's module is imported only when it is asked for, since some need packages of an extra.
"""

from importlib import import_module
from typing import Any

from infoform.experiments.base import Experiment, Settings
from infoform.experiments.result import Result

EXPERIMENTS: dict[str, str] = {  # name -> module with an EXPERIMENT
    "toy": "infoform.experiments.toy",
    "toy-rank": "infoform.experiments.toy_rank",
    "uci-information": "infoform.experiments.uci_information",
    "uci-likelihood": "infoform.experiments.uci_likelihood",
    "uci-likelihood-long": "infoform.experiments.uci_likelihood_long",
    "uci-landscape": "infoform.experiments.uci_landscape",
    "active-learning": "infoform.experiments.active_learning",
    "mnist": "infoform.experiments.mnist",
    "cifar10": "infoform.experiments.cifar10",
    "space": "infoform.experiments.space",
    "time": "infoform.experiments.time",
    "spectra": "infoform.experiments.spectra",
    "imagenet": "infoform.experiments.imagenet",
    "imagenet-efficientnet": "infoform.experiments.imagenet_efficientnet",
    "imagenet-resnet50": "infoform.experiments.imagenet_resnet50",
}


def get_experiment(name: str) -> Experiment[Any]:
    """Return the experiment of this name."""
    if name not in EXPERIMENTS:
        raise ValueError(f"an experiment must be one of {', '.join(EXPERIMENTS)}, got {name!r}.")
    found: Experiment[Any] = import_module(EXPERIMENTS[name]).EXPERIMENT
    return found


__all__ = ["EXPERIMENTS", "Experiment", "Result", "Settings", "get_experiment"]
