"""What posteriors of large networks take: numbers and bytes, beside the paper's table; Lee et al. 2020, section 5.

KFAC and EFB store tensors whose shapes are those of the layers; these are counted without a fit (stand_ins.py).
What INF stores depends on which eigenvectors its pairs use, so that it is fitted, on few small photographs, and counted
from its posterior, with Diag from the same fit. The paper's form of INF (grid support, additive correction) is taken in
our basis by default: its own needs an eigendecomposition of every layer's input factor, which takes hours for all five
networks, and is done with --full. All are set beside `infoform.plan`, which knows no data: exact but for INF, for which
it tells the most that it can take.
"""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

import infoform
from infoform.data import imagenet
from infoform.experiments.base import Experiment, Settings
from infoform.experiments.cost import space_page
from infoform.experiments.cost.stand_ins import stand_in
from infoform.experiments.networks.architectures import ARCHITECTURES, build_for
from infoform.options import Settings as Options
from infoform.posteriors.network_posterior import Posterior
from infoform.records.study_result import Result

PAPER_FORM: dict[str, Any] = {"support": "grid", "correction": "additive", "core": "diagonal"}


@dataclass(frozen=True)
class SpaceSettings(Settings):
    """Networks, and what they are fitted on."""

    networks: tuple[str, ...] = tuple(ARCHITECTURES)
    rank: int = 100
    prior_rank: int = 8
    images: int = 8  # photographs of the fit
    size: int = 64  # pixels of their middle
    paper_basis: bool = False  # whether KFAC, EFB and the paper's INF are fitted, with their eigendecompositions


class Space(Experiment[SpaceSettings]):
    """A piece is a network."""

    name = "space"
    summary = "Numbers and bytes of posteriors over the weights of five ImageNet networks."
    reproduces = "the table of space complexity on ImageNet networks"

    def settings(self, *, quick: bool = False, full: bool = False) -> SpaceSettings:
        if quick:
            return SpaceSettings(networks=("resnet18",), images=4, size=64)
        if full:
            return SpaceSettings(images=64, size=224, paper_basis=True)
        return SpaceSettings()

    def pieces(self, settings: SpaceSettings) -> Sequence[str]:
        return settings.networks

    def run_piece(self, key: str, settings: SpaceSettings, *, cache: Path) -> dict[str, Any]:
        x = imagenet.load(0, classes=settings.images, size=settings.size).scaled(imagenet.MEAN, imagenet.STD)
        model = build_for(key, x, seed=settings.seed)
        return {
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "layers": len(infoform.Laplace(model, "classification").layers),
            "planned": planned(model, settings.rank),
            "stored": stored(model, list(x.split(4)), settings),
        }

    def page(self, result: Result) -> str:
        return space_page.page(result)


def planned(model: nn.Module, rank: int) -> dict[str, dict[str, int]]:
    """Return the bytes that `plan` tells before any data is seen, by structure and storage, with its default prior."""
    found: dict[str, dict[str, int]] = {}
    for structure in ("diag", "kfac", "efb-paper", "inf-paper", "inf"):
        storages = [None] if structure in ("kfac", "efb-paper") else [None, "bfloat16"]
        found[structure] = {}
        for storage in storages:
            form = with_rank(structure, rank)
            form = form if storage is None else form.with_options(storage=storage)
            found[structure][storage or "float32"] = infoform.plan(model, structure=form).total_bytes
    return found


def stored(model: nn.Module, batches: Sequence[Tensor], settings: SpaceSettings) -> dict[str, dict[str, Any]]:
    """Return numbers and bytes of each structure's posterior, and of the file of ours."""
    fitted = _fit(model, batches, settings, "inf", "activation")
    found = {
        "diag": of_laplace(fitted, structure="diag", prior="isotropic"),
        "kfac": counted(stand_in(model, "kfac", device="meta")),
        "efb-paper": counted(stand_in(model, "efb-paper", device="meta")),
        "inf-paper": of_laplace(fitted, structure="inf", prior="isotropic", **PAPER_FORM),
        "inf": of_laplace(fitted, structure="inf", prior="isotropic"),
        "inf, activation prior": {
            **of_laplace(fitted, structure="inf", prior="activation"),
            "file": file_bytes(fitted),
        },
    }
    if settings.paper_basis:
        for structure in ("kfac", "efb-paper", "inf-paper"):
            laplace = _fit(model, batches, settings, structure, "isotropic")
            found[structure] = of_laplace(laplace, structure=structure, prior="isotropic")
    return found


def of_laplace(laplace: infoform.Laplace, **options: Any) -> dict[str, Any]:
    """Return what a fitted posterior stores, in float32, and in bfloat16 where the structure has that."""
    found: dict[str, Any] = counted(laplace.posterior(**options))
    if "storage" in laplace.settings.resolve(options["structure"]).option_names():
        found["bfloat16_bytes"] = laplace.posterior(**options, storage="bfloat16").nbytes
    return found


def counted(posterior: Posterior) -> dict[str, int]:
    """Return how many numbers a posterior stores, the prior's included, and in how many bytes."""
    own = sum(tensor.numel() for layer in posterior.layers.values() for tensor in layer.state_dict().values())
    priors = sum(layer.prior.nbytes // 4 for layer in posterior.layers.values())
    return {"values": own + priors, "bytes": posterior.nbytes}


def file_bytes(laplace: infoform.Laplace) -> int:
    """Return the size of the file that `save` writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "posterior.safetensors"
        laplace.save(path)
        return os.path.getsize(path)


def with_rank(structure: str, rank: int) -> infoform.Structure:
    """Return a structure by its name, with this rank if it has one."""
    return Options(infoform.Inf(rank=rank)).resolve(structure)


def _fit(
    model: nn.Module, batches: Sequence[Tensor], settings: SpaceSettings, structure: str, prior: str
) -> infoform.Laplace:
    laplace = infoform.Laplace(
        model,
        "classification",
        structure=with_rank(structure, settings.rank),
        prior=prior,
        fit_options=infoform.FitOptions(input_rank=settings.prior_rank),
        seed=settings.seed,
    )
    return laplace.fit(batches, progress=False)


EXPERIMENT = Space()
