"""How long a sample of all weights takes, and how long the information matrix, beside the paper's two tables.

Times are of one thread, in rounds: each round runs every structure once, and ratios are to Diag's time in the same
round, so that a machine's moods are shared. A sample from KFAC or EFB is products of dense matrices, whose time does
not depend on their numbers: random ones stand in for eigenvectors, which would take hours to find. INF is fitted; the
paper's form of it (grid support, additive correction, and our sampler, since the printed one is wrong) is taken in our
basis. Information matrices are `fit`: passes over the data, to the factors for KFAC, to the diagonal for Diag, with
eigenvectors and eigenvalues for INF and EFB, and EFB once, beside a fit of Diag.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import infoform
from infoform.data import imagenet
from infoform.experiments.base import Experiment, Settings
from infoform.experiments.cost import sampling_time_page as time_page
from infoform.experiments.cost.space import PAPER_FORM, with_rank
from infoform.experiments.cost.stand_ins import stand_in
from infoform.experiments.networks.architectures import ARCHITECTURES, build_for
from infoform.posteriors.network_posterior import Posterior
from infoform.records.study_result import Result

FITS: dict[str, dict[str, Any]] = {  # label -> options of Laplace
    "diag": {"structure": "diag"},
    "kfac": {"structure": "kfac"},
    "inf": {"structure": "inf", "prior": "isotropic"},
    "inf, activation prior": {"structure": "inf", "prior": "activation"},
}
EFB = {"diag": FITS["diag"], "efb": {"structure": "efb"}}  # by itself, and once: its eigendecompositions take minutes


@dataclass(frozen=True)
class TimeSettings(Settings):
    """Networks, and how often they are timed."""

    networks: tuple[str, ...] = tuple(ARCHITECTURES)
    rank: int = 100
    images: int = 8  # photographs of a fit
    batch: int = 4
    size: int = 224  # pixels
    fit_rounds: int = 2
    sample_rounds: int = 5


class Time(Experiment[TimeSettings]):
    """A piece is the samples or the fits of a network, or its fit by EFB."""

    name = "time"
    summary = "Time of a weight sample and of the information matrix for five ImageNet networks."
    reproduces = "the two tables of wall-clock times on ImageNet networks (supplement)"

    def settings(self, *, quick: bool = False, full: bool = False) -> TimeSettings:
        if quick:
            tiny = ("tiny-resnet", "tiny-densenet")
            return TimeSettings(networks=tiny, images=4, size=64, fit_rounds=2, sample_rounds=3)
        return TimeSettings(images=32, sample_rounds=30) if full else TimeSettings()

    def pieces(self, settings: TimeSettings) -> Sequence[str]:
        return [f"{network} {work}" for work in ("samples", "fits", "efb") for network in settings.networks]

    def run_piece(self, key: str, settings: TimeSettings, *, cache: Path) -> dict[str, Any]:
        network, work = key.split()
        x = imagenet.load(0, classes=settings.images, size=settings.size).scaled(imagenet.MEAN, imagenet.STD)
        model = build_for(network, x, seed=settings.seed)
        batches = list(x.split(settings.batch))
        with one_thread():
            if work == "samples":
                return {"seconds": in_rounds(samplers(model, batches, settings), settings.sample_rounds)}
            if work == "efb":
                return {"seconds": in_rounds(fits(model, batches, settings, EFB), 1, uncounted=0)}
            return {"seconds": in_rounds(fits(model, batches, settings, FITS), settings.fit_rounds)}

    def page(self, result: Result) -> str:
        return time_page.page(result)


def samplers(model: nn.Module, batches: Sequence[Tensor], settings: TimeSettings) -> dict[str, Callable[[], object]]:
    """Return what draws a sample of all weights, by structure."""
    structure = infoform.Inf(rank=settings.rank)
    laplace = infoform.Laplace(model, "classification", structure=structure, prior="activation", seed=settings.seed)
    laplace.fit(batches, progress=False)
    posteriors = {
        "diag": laplace.posterior(structure="diag", prior="isotropic"),
        "kfac": stand_in(model, "kfac"),
        "efb": stand_in(model, "efb-paper"),
        "inf-paper": laplace.posterior(structure="inf", prior="isotropic", **PAPER_FORM),
        "inf": laplace.posterior(structure="inf", prior="isotropic"),
        "inf, activation prior": laplace.posterior(),
    }
    generator = torch.Generator().manual_seed(settings.seed)

    def draws(posterior: Posterior) -> Callable[[], object]:
        return lambda: posterior.sample(1, generator=generator)

    return {name: draws(posterior) for name, posterior in posteriors.items()}


def fits(
    model: nn.Module, batches: Sequence[Tensor], settings: TimeSettings, which: Mapping[str, dict[str, Any]]
) -> dict[str, Callable[[], object]]:
    """Return what measures the information matrix, by structure."""

    def fit(options: dict[str, Any]) -> Callable[[], object]:
        structure = with_rank(options["structure"], settings.rank)
        chosen = {**options, "structure": structure, "seed": settings.seed}
        return lambda: infoform.Laplace(model, "classification", **chosen).fit(batches, progress=False)

    return {name: fit(options) for name, options in which.items()}


def in_rounds(works: Mapping[str, Callable[[], object]], rounds: int, *, uncounted: int = 1) -> dict[str, list[float]]:
    """Return the seconds of each, round by round, after one round that computes what is kept and is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for number in range(uncounted + rounds):
        for name, work in works.items():
            begun = time.perf_counter()
            work()
            if number >= uncounted:
                seconds[name].append(time.perf_counter() - begun)
    return seconds


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread within."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


EXPERIMENT = Time()
