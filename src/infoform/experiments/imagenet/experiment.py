"""Trained ImageNet networks, known photographs and paintings: calibration, and telling what is unknown.

Of two validation photographs a class one is for fitting and tuning, the other for testing. Of the first ones every
fifth is held out of the fit: on these τ, N and the temperature are chosen; test photographs and paintings choose
nothing. A piece is `fit`, `plain`, `temperature`, `swag` or `STRUCTURE PRIOR KIND TUNING`, where tuning is by

search       the paper's: random pairs (N, τ), here by NLL and with rounds (halving.py)
validation   τ alone, by NLL, with N the number of images that the network was trained on
evidence     τ alone, by Laplace's evidence, with the same N and no held-out data
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from infoform.experiments.base import Experiment
from infoform.experiments.imagenet import charts as imagenet_charts
from infoform.experiments.imagenet import page as imagenet_page
from infoform.experiments.imagenet.run import OTHERS, ImageNetSettings, Run
from infoform.records.study_result import Result


class ImageNet(Experiment[ImageNetSettings]):
    """A network with its trained weights; other files have other networks."""

    name: ClassVar[str] = "imagenet"
    network: ClassVar[str] = "mobilenet"
    summary: ClassVar[str] = "MobileNetV1-0.25, trained on ImageNet, and asked about photographs and about paintings."
    reproduces: ClassVar[str] = "the figures of calibration and out-of-domain data on ImageNet, on another network"
    packages: ClassVar[tuple[str, ...]] = ("torchmetrics", "scikit-learn", "pillow")
    choices: ClassVar[tuple[str, ...]] = ("methods",)

    def settings(self, *, quick: bool = False, full: bool = False) -> ImageNetSettings:
        if quick:
            return ImageNetSettings(
                network=self.network,
                images=50,
                test=50,
                unknown=25,
                samples=3,
                linear_samples=2,
                methods=("diag isotropic mc search", *OTHERS, "swag"),
                rounds=((6, 5, 1), (2, 10, 2)),
                tuning_images=10,
                tuning_samples=2,
                swag_epochs=2,
            )
        if full:
            return ImageNetSettings(
                network=self.network,
                linear_samples=30,
                rounds=((100, 200, 30),),
                tuning_images=200,
                tuning_samples=30,
            )
        return self.default()

    def default(self) -> ImageNetSettings:
        """Return sizes that suit the network's cost on one core."""
        return ImageNetSettings(network=self.network)

    def pieces(self, settings: ImageNetSettings) -> Sequence[str]:
        return ["fit", "plain", "temperature", *settings.methods]

    def needs(self, key: str, settings: ImageNetSettings) -> Sequence[str]:
        return ["fit"] if len(key.split()) > 1 else ()

    def run_piece(self, key: str, settings: ImageNetSettings, *, cache: Path) -> dict[str, Any]:
        work = key.split()
        run = Run(settings, cache)
        table: dict[str, Callable[[], dict[str, Any]]] = {
            "fit": run.fit_piece,
            "plain": run.plain_piece,
            "temperature": run.temperature_piece,
            "swag": run.swag_piece,
        }
        return table[work[0]]() if len(work) == 1 else run.laplace_piece(*work)

    def page(self, result: Result) -> str:
        return imagenet_page.page(self.name, result)

    def charts(self, result: Result, folder: Path) -> None:
        imagenet_charts.draw(self.name, result, folder)


EXPERIMENT = ImageNet()
