"""Trained ImageNet networks, known photographs and paintings: calibration, and telling what is unknown.

Of two validation photographs a class one is for fitting and tuning, the other for testing. Of the first ones every
fifth is held out of the fit: on these τ, N and the temperature are chosen; test photographs and paintings choose
nothing. A piece is `fit` or a method (method.py): `plain`, `temperature`, `last-layer` (a posterior of the last layer,
by `Laplace.tune` with its defaults), `swag`, or a Laplace posterior, tuned by

search       the paper's: random pairs (N, τ), here by NLL and by successive halving
validation   τ alone, by NLL, with N the number of images that the network was trained on
evidence     τ alone, by Laplace's evidence, with the same N and no held-out data

by `Laplace.tune`.

Every network is an `ImageNet` with its own sizes, in a file of its own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infoform.experiments.base import Experiment
from infoform.experiments.imagenet import charts as imagenet_charts
from infoform.experiments.imagenet import page as imagenet_page
from infoform.experiments.imagenet.run import LAST_LAYER, UNSEARCHED, ImageNetSettings, Run
from infoform.experiments.method import Method
from infoform.records.study_result import Result


@dataclass(frozen=True)
class ImageNet(Experiment[ImageNetSettings]):
    """A network with its trained weights, and the sizes of a run that suit its cost on one core."""

    name: str = "imagenet"
    summary: str = "MobileNetV1-0.25, trained on ImageNet, and asked about photographs and about paintings."
    reproduces: str = "the figures of calibration and out-of-domain data on ImageNet, on another network"
    sizes: ImageNetSettings = field(default_factory=ImageNetSettings)

    def settings(self, *, quick: bool = False, full: bool = False) -> ImageNetSettings:
        if quick:
            return ImageNetSettings(
                network=self.sizes.network,
                images=50,
                test=50,
                unknown=25,
                samples=3,
                linear_samples=2,
                methods=(LAST_LAYER, "diag isotropic mc search", *UNSEARCHED, "swag"),
                pairs=6,
                pair_samples=2,
                tuning_samples=2,
                swag_epochs=2,
            )
        if full:
            return ImageNetSettings(
                network=self.sizes.network,
                linear_samples=30,
                search="random",  # every pair on all held-out images
                pair_samples=30,
                tuning_samples=30,
            )
        return self.sizes

    def pieces(self, settings: ImageNetSettings) -> Mapping[str, Sequence[str]]:
        keys = ("fit", "plain", "temperature", *settings.methods)
        return {key: ("fit",) if Method.parse(key).is_laplace else () for key in keys}

    def run_piece(self, key: str, settings: ImageNetSettings, *, cache: Path) -> dict[str, Any]:
        method, run = Method.parse(key), Run(settings, cache)
        table: dict[str, Callable[[], dict[str, Any]]] = {
            "fit": run.fit_piece,
            "plain": run.plain_piece,
            "temperature": run.temperature_piece,
            LAST_LAYER: run.last_layer_piece,
            "swag": run.swag_piece,
        }
        return run.laplace_piece(method) if method.is_laplace else table[method.name]()

    def page(self, result: Result) -> str:
        return imagenet_page.page(self.name, result)

    def charts(self, result: Result, folder: Path) -> None:
        imagenet_charts.draw(self.name, result, folder)


EXPERIMENT = ImageNet()
