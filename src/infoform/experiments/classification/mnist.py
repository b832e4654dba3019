"""MNIST against notMNIST: the paper's LeNet, every structure with both priors, and the baselines."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from infoform.data import mnist, notmnist
from infoform.data.images import Images
from infoform.experiments.classification.experiment import Classification, ClassificationSettings, Parts
from infoform.experiments.classification.targets import (
    BYTES,
    DEFAULT,
    SAMPLED,
    WEAK_SAMPLED,
    WIDE,
    Target,
    against,
    fixed,
    memory,
)
from infoform.experiments.networks.classifiers import lenet

PAPERS = ("diag", "kfac", "efb-paper", "inf-paper")  # the paper's estimators
METHODS = (
    DEFAULT,
    WIDE,
    SAMPLED,
    BYTES,
    WEAK_SAMPLED,
    "inf isotropic mc validation",
    *(f"{structure} isotropic mc validation" for structure in PAPERS),
    "last-layer activation:16 linear validation",
    "inf activation:16 linear evidence",  # whose strength is 1
    "inf activation:16 mc evidence",
    *(f"{structure} isotropic mc evidence" for structure in PAPERS),
    *(f"{structure} isotropic mc search" for structure in PAPERS),
    "inf activation:16x30 mc search",
)
STRONGER = tuple(f"{structure} activation:16x30 mc validation" for structure in PAPERS)
WEAKER = tuple(f"{structure} activation:16 mc validation" for structure in PAPERS)
REPEATED = (DEFAULT, SAMPLED, "kfac isotropic mc validation", "efb-paper isotropic mc validation")
BASELINES = ("mc-dropout", "swag")


class MNIST(Classification):
    """Digits are known, letters are not."""

    name: ClassVar[str] = "mnist"
    summary: ClassVar[str] = "A LeNet trained on MNIST, and asked about notMNIST."
    reproduces: ClassVar[str] = "the MNIST part of the tables of classification and of complexity, and its histograms"
    last_layer: ClassVar[str] = "10"
    paper: ClassVar[Mapping[str, tuple[float, float]]] = {
        "plain": (0.395, 0.055),
        "diag isotropic mc validation": (0.0075, 0.555),
        "kfac isotropic mc validation": (0.0078, 0.599),
        "mc-dropout": (0.0105, 0.562),
        "ensemble": (0.0635, 0.596),
        "efb-paper isotropic mc validation": (0.012, 0.618),
        "inf-paper isotropic mc validation": (0.0069, 0.635),
    }
    targets: ClassVar[Sequence[Target]] = (
        fixed("AUROC of MNIST and notMNIST", "auroc", 0.995, at_least=True, method=DEFAULT),
        fixed("the same, sampled", "auroc", 0.995, at_least=True, method=SAMPLED),
        fixed("entropy on notMNIST", "entropy_unknown", 0.635, at_least=True, method=DEFAULT),
        fixed("the same, sampled", "entropy_unknown", 0.635, at_least=True, method=SAMPLED),
        fixed("entropy on MNIST", "entropy", 0.025, at_least=False, method=DEFAULT),
        fixed("the same, sampled", "entropy", 0.025, at_least=False, method=SAMPLED),
        fixed("ECE on MNIST", "ece", 0.0069, at_least=False, method=DEFAULT),
        fixed("the same, sampled", "ece", 0.0069, at_least=False, method=SAMPLED),
        fixed("sampled with a strength of 1: AUROC", "auroc", 0.995, at_least=True, method=WEAK_SAMPLED),
        fixed("the same: entropy on notMNIST", "entropy_unknown", 0.635, at_least=True, method=WEAK_SAMPLED),
        against(
            "accuracy: the plain network's less 0.1 %", "accuracy", "plain", at_least=True, slack=-0.001, method=DEFAULT
        ),
        against("AUROC: that of the ensemble", "auroc", "ensemble", at_least=True, method=DEFAULT),
        against(
            "the same by mutual information", "auroc_mutual_information", "ensemble", at_least=True, method=DEFAULT
        ),
        against("NLL: KFAC's", "nll", "kfac isotropic mc validation", at_least=False, method=DEFAULT),
        against("NLL: EFB's", "nll", "efb-paper isotropic mc validation", at_least=False, method=DEFAULT),
        memory("bytes: share of KFAC's", "inf activation", "kfac isotropic", 1 / 6),
        memory("the same in bfloat16", "inf activation, bfloat16", "kfac isotropic", 1 / 6),
        memory("the same as bytes", "inf activation, uint8", "kfac isotropic", 1 / 6),
        against("NLL as bytes: KFAC's", "nll", "kfac isotropic mc validation", at_least=False, method=BYTES),
        against("NLL sampled: KFAC's", "nll", "kfac isotropic mc validation", at_least=False, method=SAMPLED),
    )

    def settings(self, *, quick: bool = False, full: bool = False) -> ClassificationSettings:
        if quick:
            return ClassificationSettings(
                train=1_000,
                validation=200,
                curvature=200,
                test=300,
                unknown=200,
                networks=2,
                epochs=2,
                samples=4,
                tuning_samples=3,
                swag_epochs=1,
                swag_snapshots=4,
                search_trials=3,
                methods=("inf activation:16 mc validation", "kfac isotropic mc evidence", *BASELINES),
                repeated=("inf activation:16 mc validation",),
            )
        if full:
            return ClassificationSettings(
                train=55_000,
                validation=5_000,
                curvature=55_000,
                test=10_000,
                unknown=18_724,
                networks=15,
                epochs=20,
                samples=100,
                tuning_samples=30,
                swag_epochs=10,
                search_trials=300,
                methods=(*METHODS, *STRONGER, *WEAKER, *BASELINES),
                repeated=(*METHODS, *STRONGER, *WEAKER, *BASELINES),
            )
        return ClassificationSettings(methods=(*METHODS, *WEAKER, *BASELINES), repeated=REPEATED)

    def network(self) -> nn.Module:
        return lenet()

    def parts(self, settings: ClassificationSettings) -> Parts:
        whole, test, letters = mnist.load("train"), mnist.load("test"), notmnist.load()

        def scaled(images: Images) -> tuple[Tensor, Tensor]:
            return images.scaled(mnist.MEAN, mnist.STD), images.labels

        order = torch.randperm(len(letters), generator=torch.Generator().manual_seed(settings.seed))
        return Parts(
            train=scaled(whole[: settings.train]),
            validation=scaled(whole[len(whole) - settings.validation :]),
            curvature=scaled(whole[: settings.curvature]),
            test=scaled(test[spaced(len(test), settings.test)]),
            unknown=scaled(letters[order[: settings.unknown]])[0],
        )


def spaced(available: int, wanted: int) -> Tensor:  # -> (wanted,)
    """Return rows evenly spaced over all: MNIST's first 5,000 test digits are easier than its last."""
    return torch.arange(wanted) * available // wanted


EXPERIMENT = MNIST()
