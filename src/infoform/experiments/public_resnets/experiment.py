"""Public ResNets on CIFAR-10: known pictures, unknown ones, and every method cross-fitted.

The networks were trained by others. A piece is a method (method.py) on one of them, whose number is the depth: `plain`,
`temperature`, `swag`, laplace-torch, `curve` (NLL over the number of training pictures), `joined` (the answers' spread
as one more part of novelty), or a posterior of ours: of all layers (`inf`, `kfac`, …), of the last stage, or of
the last layer. τ and T are found

validation   on a fifth of the test pictures, for all the others; on another fifth for the first one
evidence     on training pictures (τ; T is 1)

so that every test picture is predicted by a posterior that was tuned on others. Nothing is chosen on test pictures
otherwise.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from infoform.experiments.base import Experiment
from infoform.experiments.method import Method
from infoform.experiments.public_resnets.run import Run, pieces_of
from infoform.experiments.public_resnets.settings import (
    CURVE,
    FULL_METHODS,
    JOINED,
    TEMPERATURE,
    WITH_SPREAD,
    ResnetSettings,
)
from infoform.records.study_result import Result


class PublicResnets(Experiment[ResnetSettings]):
    """ResNet-20 and ResNet-56 of CIFAR-10."""

    name = "cifar10-resnet"
    summary = "ResNet-20 and ResNet-56 that others trained on CIFAR-10: all test pictures, and six unknown sets."
    reproduces = "the tables of calibration and of out-of-domain data, on public networks that others report on, too"

    def settings(self, *, quick: bool = False, full: bool = False) -> ResnetSettings:
        if quick:
            return ResnetSettings(
                methods=tuple(one for one in FULL_METHODS if one.endswith(" 20") and "laplace-torch" not in one),
                curvature=40,
                curvature_all=20,
                test=50,
                unknown=20,
                unknown_slow=20,
                samples=4,
                trials=5,
                batch=20,
                resamples=50,
                curve=(20, 40),
                rank=10,
                swag_pictures=40,
                swag_epochs=2,
            )
        return ResnetSettings(methods=FULL_METHODS) if full else ResnetSettings()

    def pieces(self, settings: ResnetSettings) -> Mapping[str, Sequence[str]]:
        needs = {}
        for key in settings.methods:
            method = Method.parse(key)
            wanted = {CURVE: (), TEMPERATURE: (), JOINED: WITH_SPREAD}.get(method.name, (TEMPERATURE,))
            every = (f"{one} {method.network}" for one in wanted)
            needs[key] = tuple(one for one in every if one in settings.methods)
        return needs

    def run_piece(self, key: str, settings: ResnetSettings, *, cache: Path) -> dict[str, Any]:
        method = Method.parse(key)
        assert method.network is not None
        run = Run(settings, cache, method.network)
        return run.laplace_piece(method) if method.is_laplace else pieces_of(run)[method.name](method)

    def page(self, result: Result) -> str:
        from infoform.experiments.public_resnets.page import page

        return page(result)

    def charts(self, result: Result, folder: Path) -> None:
        from infoform.experiments.public_resnets.charts import draw

        draw(result, folder)


EXPERIMENT = PublicResnets()
