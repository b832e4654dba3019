"""How the information of large networks is spread over eigenvalues: the paper's evidence that few of them suffice.

Λ are the second moments of gradients in the Kronecker eigenbasis (Lee et al. 2020, figure of eigenvalues). Of a layer
with more than 128 inputs or outputs the leading 64 eigenvectors of that side are kept, found from a sketch; what the
others hold is known as one sum, and counted as left out. The five architectures are at a random start, the three others
have their trained weights; both see the same photographs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import infoform
from infoform.curvature.curvature import Curvature
from infoform.data import imagenet
from infoform.experiments.base import Experiment, Settings
from infoform.experiments.cost import spectra_page
from infoform.experiments.cost.spectra_page import RANKS
from infoform.experiments.imagenet.networks import NETWORKS
from infoform.experiments.networks.architectures import ARCHITECTURES, build_for
from infoform.records.study_result import Result

DECADES = 10  # of eigenvalues, over that of the mean, which a histogram shows below and above
BINS_PER_DECADE = 4


@dataclass(frozen=True)
class SpectraSettings(Settings):
    """Networks, and what they are fitted on; those of ARCHITECTURES are random, those of NETWORKS trained."""

    networks: tuple[str, ...] = (*ARCHITECTURES, *(f"trained {name}" for name in NETWORKS))
    images: int = 8
    size: int = 96  # pixels, of the random ones
    trained_images: tuple[int, ...] = (100, 32, 8)  # for each of the trained ones
    trained_size: int = 224


class Spectra(Experiment[SpectraSettings]):
    """A piece is a network."""

    name = "spectra"
    summary = "Eigenvalues of the information matrices of eight ImageNet networks."
    reproduces = "the figure of eigenvalue histograms (supplement)"

    def settings(self, *, quick: bool = False, full: bool = False) -> SpectraSettings:
        if quick:
            return SpectraSettings(networks=("tiny-densenet", "trained mobilenet"), images=4, trained_images=(8, 8, 8))
        if full:
            return SpectraSettings(images=64, size=224, trained_images=(1000, 1000, 1000))
        return SpectraSettings()

    def pieces(self, settings: SpectraSettings) -> Sequence[str]:
        return settings.networks

    def run_piece(self, key: str, settings: SpectraSettings, *, cache: Path) -> dict[str, Any]:
        model, batches = network_and_data(key, settings)
        laplace = infoform.Laplace(model, "classification", prior="isotropic", seed=settings.seed)
        laplace.fit(batches, progress=False)
        layers = {name: layer_spectrum(one) for name, one in laplace.curvature.items()}
        return {"histogram": histogram(laplace.curvature), "layers": layers}

    def page(self, result: Result) -> str:
        return spectra_page.page(result)

    def charts(self, result: Result, folder: Path) -> None:
        spectra_page.draw(result, folder)


def network_and_data(key: str, settings: SpectraSettings) -> tuple[nn.Module, list[Tensor]]:
    """Return the network of a piece, and the photographs it is fitted on."""
    *trained, name = key.split()
    if not trained:
        x = imagenet.load(0, classes=settings.images, size=settings.size).scaled(imagenet.MEAN, imagenet.STD)
        return build_for(name, x, seed=settings.seed), list(x.split(4))
    count = settings.trained_images[list(NETWORKS).index(name)]
    about = NETWORKS[name]
    return about.load(), list(about.scaled(imagenet.load(0, classes=count, size=settings.trained_size).pixels).split(4))


def layer_spectrum(curvature: Curvature) -> dict[str, Any]:
    """Return a layer's energy, and the share of it that its K largest eigenvalues hold, for K of RANKS."""
    eigen = curvature.bases["gradient"]
    values, energy = eigen.eigenvalues.double().flatten(), eigen.total_energy
    summed = values.sort(descending=True).values.cumsum(0)
    kept = [float(summed[min(rank, len(summed)) - 1]) / energy if energy > 0 else 1.0 for rank in RANKS]
    return {"weights": curvature.shape[0] * curvature.shape[1], "known": len(values), "energy": energy, "kept": kept}


def histogram(curvature: Mapping[str, Curvature]) -> dict[str, Any]:
    """Return counts of log10(Λ / mean of the network's Λ), all layers together; beyond the ends is in the end bins."""
    every = [one.bases["gradient"] for one in curvature.values()]
    weights = sum(one.shape[0] * one.shape[1] for one in curvature.values())
    energy = sum(one.total_energy for one in every)
    values = torch.cat([one.eigenvalues.double().flatten() for one in every])
    logs = (values * (weights / energy)).clamp_min(1e-300).log10()
    bins = 2 * DECADES * BINS_PER_DECADE
    clamped = logs.clamp(-DECADES, DECADES)
    counted = torch.histogram(clamped, bins, range=(-float(DECADES), float(DECADES)))
    return {
        "low": -DECADES,
        "high": DECADES,
        "count": [int(count) for count in counted.hist.tolist()],
        "weights": weights,
        "unknown": weights - len(logs),
        "unknown_energy": sum(one.total_energy - float(one.eigenvalues.double().sum()) for one in every) / energy,
    }


EXPERIMENT = Spectra()
