"""The pictures of a run: known ones, which part of them tunes what, and six sets of unknown ones."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from infoform.common.tensor_file import write_tensors
from infoform.data import cifar10, imagenet, mnist, paintings, svhn
from infoform.data.images import Images, spaced
from infoform.experiments.networks import cifar_resnets
from infoform.experiments.public_resnets.settings import ResnetSettings
from infoform.experiments.unknown_pictures import in_colour, noise, shrunk

SVHN = "SVHN"
NOISE = 2000
Batches = list[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Pictures:
    """Scaled pictures in batches; what is read is read once."""

    settings: ResnetSettings
    cache: Path

    @cached_property
    def _train(self) -> Images:
        return cifar10.load("train")

    @cached_property
    def test(self) -> Images:
        """The known pictures that methods are scored on."""
        every = cifar10.load("test")
        return every[spaced(len(every), self.settings.test)]

    def train(self, count: int) -> Batches:
        """Return training pictures, drawn at random; fewer are the first of more."""
        order = torch.randperm(len(self._train), generator=torch.Generator().manual_seed(self.settings.seed))
        return self.batches(self._train[order[:count]])

    @cached_property
    def fold(self) -> Tensor:  # (N,)
        """The number of each test picture's fold."""
        return torch.arange(len(self.test)) % self.settings.folds

    def batches(self, images: Images) -> Batches:
        """Return pictures as the networks take them."""
        size = self.settings.batch
        scaled = [cifar_resnets.scaled(part) for part in images.pixels.split(size)]
        return list(zip(scaled, images.labels.split(size), strict=True))

    def unknown(self, *, slow: bool = False) -> dict[str, list[Tensor]]:
        """Return the unknown sets in batches; where every picture costs many passes, a part of SVHN alone."""
        s = self.settings
        makers: dict[str, Callable[[], Tensor]] = {
            SVHN: lambda: svhn.load().pixels,
            "MNIST in colour": lambda: in_colour(mnist.load("test").pixels[: s.unknown]),
            "uniform noise": partial(noise, min(NOISE, s.unknown), (3, 32, 32), normal=False),
            "normal noise": partial(noise, min(NOISE, s.unknown), (3, 32, 32), normal=True),
            "paintings": lambda: shrunk(paintings.load(size=256)),
            "ImageNet": lambda: shrunk(torch.cat([imagenet.load(which, size=256).pixels for which in (0, 1)])),
        }
        most = s.unknown_slow if slow else s.unknown
        found = {}
        for name in (SVHN,) if slow else makers:
            path = (
                self.cache / f"unknown-{name.replace(' ', '-')}-{s.unknown}.safetensors"
            )  # reading photographs takes long
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                write_tensors(path, {"pixels": makers[name]().contiguous()})
            pixels = load_file(path)["pixels"]
            if slow or name != SVHN:
                pixels = pixels[spaced(len(pixels), most)]
            found[name] = [cifar_resnets.scaled(part) for part in pixels.split(s.batch)]
        return found
