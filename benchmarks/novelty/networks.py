"""The networks that are asked, with what is known to each and what is not.

Four parts are known: `train` for the fit, `validation` for the percentiles, `fresh` for the scores, and some of `fresh`
spoilt on purpose. Everything else in `unknown` is of no class that the network was trained on, or no digit as it is
written.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from infoform.data import cifar10, imagenet, mnist, notmnist, paintings, svhn
from infoform.data.images import Images
from infoform.experiments.imagenet.networks import NETWORKS as PHOTOGRAPHS
from infoform.experiments.networks import cifar_resnets
from infoform.experiments.networks.classifiers import augment, central_crop, lenet, small_vgg
from infoform.experiments.networks.training import Training, train
from infoform.experiments.unknown_pictures import in_colour, noise, rotated, shifted, shrunk

TRAIN, VALIDATION, SPOILT = 20_000, 2_000, 1_000


@dataclass(frozen=True)
class Known:
    """Pictures of the classes that a network was trained on."""

    train: Images
    validation: Images
    fresh: Images


@dataclass(frozen=True)
class Case:
    """A network and the data that it is asked about."""

    title: str
    last: str  # the name of its last layer
    load: Callable[[Path], nn.Module]  # the folder where trained networks are kept -> in evaluation mode
    scaled: Callable[[Tensor], Tensor]  # bytes -> what the network takes
    known: Callable[[], Known]
    unknown: Callable[[], dict[str, Tensor]]  # name -> pixels
    chosen_on: bool = False  # whether the parts of novelty were chosen on this network
    variants: bool = True  # whether other parts are tried, of a network that they are chosen on
    spoilt: int = SPOILT  # pictures under each corruption
    batch: int = 200


def cifar_known() -> Known:
    """Return training pictures, 2,000 test pictures for the percentiles, and the other 8,000."""
    test, rows = cifar10.load("test"), _every_fifth(10_000)
    return Known(cifar10.load("train")[:TRAIN], test[rows], test[~rows])


def cifar_unknown() -> dict[str, Tensor]:
    photographs = torch.cat([imagenet.load(which, size=256).pixels for which in (0, 1)])
    return {
        "SVHN": svhn.load().pixels,
        "MNIST in colour": in_colour(mnist.load("test").pixels[:5000]),
        "MNIST in grey": shrunk(mnist.load("test").pixels[:5000].expand(-1, 3, -1, -1)),
        "uniform noise": noise(2000, (3, 32, 32), normal=False),
        "normal noise": noise(2000, (3, 32, 32), normal=True),
        "paintings": shrunk(paintings.load(size=256)),
        "ImageNet": shrunk(photographs),
    }


def digits_known() -> Known:
    test, rows = mnist.load("test"), _every_fifth(10_000)
    return Known(mnist.load("train")[:TRAIN], test[rows], test[~rows])


def digits_unknown() -> dict[str, Tensor]:
    fresh = digits_known().fresh.pixels[:5000]
    letters = notmnist.load().pixels
    return {
        "notMNIST": letters[torch.arange(5000) * len(letters) // 5000],
        "inverted": 255 - fresh,
        "shifted": shifted(fresh),
        "rotated": rotated(fresh),
        "uniform noise": noise(2000, (1, 28, 28), normal=False),
        "normal noise": noise(2000, (1, 28, 28), normal=True),
    }


def photographs_known() -> Known:
    """Return one photograph a class for the fit, and the second one of each half of the classes for the other parts.

    All are of the validation part of ImageNet: its training part is not at hand.
    """
    first, second = imagenet.load(0), imagenet.load(1)
    return Known(first, second[0::2], second[1::2])


def photographs_unknown() -> dict[str, Tensor]:
    return {
        "paintings": paintings.load(),
        "uniform noise": noise(200, (3, 224, 224), normal=False),
        "normal noise": noise(200, (3, 224, 224), normal=True),
    }


def _every_fifth(count: int) -> Tensor:
    return torch.arange(count) % 5 == 0


def _digit_network(cache: Path) -> nn.Module:
    images = mnist.load("train")[:30_000]
    training = Training(epochs=6, l2=1e-8)
    scaled = images.scaled(mnist.MEAN, mnist.STD)
    return train(lenet, scaled, images.labels, training=training, seed=0, path=cache / "mnist.pt").network


def _small_vgg(cache: Path) -> nn.Module:
    images = cifar10.load("train")[:20_000]
    training = Training(epochs=30, l2=1e-8, cosine=True)
    scaled = images.scaled(cifar10.MEAN, cifar10.STD)
    return train(
        _channels_last, scaled, images.labels, training=training, seed=0, path=cache / "vgg.pt", augment=augment
    ).network


def _channels_last() -> nn.Module:
    return small_vgg().to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def _digits_scaled(pixels: Tensor) -> Tensor:
    return Images(pixels, pixels.new_empty(len(pixels))).scaled(mnist.MEAN, mnist.STD)


def _cropped(pixels: Tensor) -> Tensor:
    images = Images(pixels, pixels.new_empty(len(pixels))).scaled(cifar10.MEAN, cifar10.STD)
    return central_crop(images).contiguous(memory_format=torch.channels_last)


def _resnet(depth: int, _: Path) -> nn.Module:
    return cifar_resnets.load(depth)


def _photograph_network(name: str, _: Path) -> nn.Module:
    return PHOTOGRAPHS[name].load()


CASES: dict[str, Case] = {
    "resnet20": Case(
        "ResNet-20", "fc", partial(_resnet, 20), cifar_resnets.scaled, cifar_known, cifar_unknown, chosen_on=True
    ),
    "mnist": Case("LeNet", "10", _digit_network, _digits_scaled, digits_known, digits_unknown, chosen_on=True),
    "resnet56": Case("ResNet-56", "fc", partial(_resnet, 56), cifar_resnets.scaled, cifar_known, cifar_unknown),
    "vgg": Case("the paper's small VGG", "15", _small_vgg, _cropped, cifar_known, cifar_unknown),
    **{
        name: Case(
            PHOTOGRAPHS[name].title, PHOTOGRAPHS[name].last_layer, partial(_photograph_network, name),
            PHOTOGRAPHS[name].scaled, photographs_known, photographs_unknown, chosen_on=name == "mobilenet",
            variants=False, spoilt=200, batch=50,
        )
        for name in ("efficientnet", "mobilenet")
    },
}  # fmt: skip
