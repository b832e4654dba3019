"""MNIST against notMNIST: the paper's LeNet, every structure with both priors, and the baselines."""

from torch import Tensor, nn

from infoform.data import mnist, notmnist
from infoform.data.images import Images
from infoform.experiments.classification.experiment import (
    Classification,
    ClassificationSettings,
    Parts,
    full_settings,
    quick_settings,
)
from infoform.experiments.classification.methods import DEFAULT, EFB, KFAC, METHODS, SAMPLED, STRONGER, WEAKER
from infoform.experiments.classification.published import MNIST as PUBLISHED
from infoform.experiments.classification.targets import MNIST_TARGETS
from infoform.experiments.networks.classifiers import lenet

BASELINES = ("mc-dropout", "swag")


class MNIST(Classification):
    """Digits are known, letters are not."""

    name = "mnist"
    summary = "A LeNet trained on MNIST, and asked about notMNIST."
    reproduces = "the MNIST part of the tables of classification and of complexity, and its histograms"
    last_layer = "10"
    paper = PUBLISHED
    targets = MNIST_TARGETS

    def settings(self, *, quick: bool = False, full: bool = False) -> ClassificationSettings:
        if quick:
            return quick_settings(BASELINES)
        if full:
            return full_settings(
                (*METHODS, *STRONGER, *WEAKER, *BASELINES),
                train=55_000,
                validation=5_000,
                curvature=55_000,
                unknown=18_724,
                epochs=20,
                swag_epochs=10,
            )
        return ClassificationSettings(methods=(*METHODS, *WEAKER, *BASELINES), repeated=(DEFAULT, SAMPLED, KFAC, EFB))

    def network(self) -> nn.Module:
        return lenet()

    def parts(self, settings: ClassificationSettings) -> Parts:
        return Parts.cut(mnist.load("train"), mnist.load("test"), notmnist.load(), settings, test_view=_scaled)


def _scaled(images: Images) -> Tensor:  # -> (N, 1, 28, 28)
    return images.scaled(mnist.MEAN, mnist.STD)


EXPERIMENT = MNIST()
