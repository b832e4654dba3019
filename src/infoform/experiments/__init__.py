"""The paper's tables and figures: to add one, write a file with an `EXPERIMENT` and a line in `EXPERIMENTS`.

    python -m infoform.experiments NAME [--quick | --full] [--out DIR] [--page DOCS]

An experiment's module is imported only when it is asked for, since some need packages of an extra.
"""

from importlib import import_module
from typing import Any

from infoform.experiments.base import Experiment, Settings
from infoform.records.study_result import Result

EXPERIMENTS: dict[str, str] = {  # name -> module with an EXPERIMENT
    "toy": "infoform.experiments.toy.experiment",
    "toy-rank": "infoform.experiments.toy.rank",
    "uci-information": "infoform.experiments.uci.information",
    "uci-likelihood": "infoform.experiments.uci.likelihood",
    "uci-likelihood-long": "infoform.experiments.uci.likelihood_long",
    "uci-landscape": "infoform.experiments.uci.landscape",
    "active-learning": "infoform.experiments.active_learning.experiment",
    "mnist": "infoform.experiments.classification.mnist",
    "cifar10": "infoform.experiments.classification.cifar10",
    "cifar10-resnet": "infoform.experiments.public_resnets.experiment",
    "space": "infoform.experiments.cost.space",
    "time": "infoform.experiments.cost.sampling_time",
    "spectra": "infoform.experiments.cost.spectra",
    "imagenet": "infoform.experiments.imagenet.experiment",
    "imagenet-efficientnet": "infoform.experiments.imagenet.efficientnet",
    "imagenet-resnet50": "infoform.experiments.imagenet.resnet50",
}


def get_experiment(name: str) -> Experiment[Any]:
    """Return the experiment of this name."""
    if name not in EXPERIMENTS:
        raise ValueError(f"an experiment must be one of {', '.join(EXPERIMENTS)}, got {name!r}.")
    found: Experiment[Any] = import_module(EXPERIMENTS[name]).EXPERIMENT
    return found


__all__ = ["EXPERIMENTS", "Experiment", "Result", "Settings", "get_experiment"]
