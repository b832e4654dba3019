"""CIFAR-10 against SVHN: the paper's small VGG with batch norm, every structure with both priors, and the baselines."""

import torch
from torch import Tensor, nn

from infoform.data import cifar10, svhn
from infoform.data.images import Images
from infoform.experiments.classification.experiment import (
    Classification,
    ClassificationSettings,
    Parts,
    full_settings,
    quick_settings,
)
from infoform.experiments.classification.methods import (
    BYTES_LINEAR,
    DEFAULT,
    KFAC,
    LAST_LAYER,
    METHODS,
    SAMPLED,
    STRONGER,
)
from infoform.experiments.classification.published import CIFAR10 as PUBLISHED
from infoform.experiments.classification.targets import CIFAR10_TARGETS
from infoform.experiments.networks.classifiers import augment, central_crop, small_vgg

MEASURED = (*METHODS, *STRONGER, "swag", BYTES_LINEAR)  # MC dropout would be of another network


class CIFAR10(Classification):
    """Photographs of ten classes are known, house numbers are not."""

    name = "cifar10"
    summary = "A small VGG with batch norm trained on CIFAR-10, and asked about SVHN."
    reproduces = "the CIFAR-10 part of the tables of classification and of complexity"
    last_layer = "15"
    paper = PUBLISHED
    targets = CIFAR10_TARGETS

    def settings(self, *, quick: bool = False, full: bool = False) -> ClassificationSettings:
        if quick:
            return quick_settings(("swag",))
        if full:
            return full_settings(
                MEASURED,
                train=45_000,
                validation=5_000,
                curvature=45_000,
                unknown=5_000,
                epochs=60,
                cosine=True,
                swag_epochs=20,
            )
        return ClassificationSettings(
            train=15_000,
            validation=2_000,
            epochs=40,
            test=10_000,  # fewer would have an ECE above the target by chance alone
            samples=10,
            search_trials=12,
            methods=MEASURED,
            repeated=(DEFAULT, SAMPLED, KFAC, LAST_LAYER),
        )

    def network(self) -> nn.Module:
        # channels last: a step of training takes .7 of the time of the other layout, a forward pass .75
        return small_vgg().to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]

    def parts(self, settings: ClassificationSettings) -> Parts:
        return Parts.cut(
            cifar10.load("train"),
            cifar10.load("test"),
            svhn.load(),
            settings,
            test_view=_cropped,
            training_view=_scaled,
            augment=augment,
        )


def _scaled(images: Images) -> Tensor:  # -> (N, 3, 32, 32)
    return images.scaled(cifar10.MEAN, cifar10.STD)


def _cropped(images: Images) -> Tensor:  # -> (N, 3, 24, 24)
    return central_crop(_scaled(images)).contiguous(memory_format=torch.channels_last)


EXPERIMENT = CIFAR10()
