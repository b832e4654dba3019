"""Errors of the information matrix over the rank, on the toy regression: diagonal and off-diagonal, first layer.

    err = |Î − I| / |I|,    Frobenius norms of the diagonals, or of all but the diagonals      Lee et al. 2020, sec. 5

The paper's INF is measured as printed, and with its diagonal clipped at 0, without which it is not a precision.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import infoform
from infoform.experiments.base import Experiment
from infoform.experiments.toy import rank_page as toy_rank_page
from infoform.experiments.toy.network import ToySettings, exact_fit, toy_data, toy_network
from infoform.posteriors import Diag, Full, Inf, Kfac, Structure, get_structure
from infoform.records.study_result import Result

FIXED: Mapping[str, Structure] = {  # whatever the rank; KFAC without a prior is OKF
    "Diag": Diag(),
    "KFAC": Kfac(),
    "EFB": get_structure("efb-paper"),
}
RANKED: Mapping[str, Structure] = {
    "INF": get_structure("inf-paper", clip=False),
    "INF clipped": get_structure("inf-paper"),
    "ours": Inf(),
}
FIRST = "0"  # name of the first layer


@dataclass(frozen=True)
class RankSettings(ToySettings):
    """The paper shows one network; here, several, each on data of its own."""

    networks: int = 20


class ToyRank(Experiment[RankSettings]):
    """Errors over the rank."""

    name = "toy-rank"
    summary = "How far every structure is from the exact information matrix, over the rank, on a toy regression."
    reproduces = "the figure of errors over the rank (section 5)"

    def settings(self, *, quick: bool = False, full: bool = False) -> RankSettings:
        return RankSettings(networks=3) if quick else RankSettings()

    def pieces(self, settings: RankSettings) -> Sequence[str]:
        return [str(index) for index in range(settings.networks)]

    def run_piece(self, key: str, settings: RankSettings, *, cache: Path) -> dict[str, Any]:
        seed = settings.seed + int(key)
        model, (x, y) = toy_network(settings, seed), toy_data(settings, seed)
        laplace = exact_fit(model, x, y, noise=1.0)
        reference = _information(laplace, Full())
        ranks = range(1, len(reference) + 1)
        matrices = {
            label: [_information(laplace, structure.with_options(rank=rank)) for rank in ranks]
            for label, structure in RANKED.items()
        }
        return {
            "fixed": {label: errors(_information(laplace, one), reference) for label, one in FIXED.items()},
            "ranked": {label: [errors(one, reference) for one in found] for label, found in matrices.items()},
            "lowest": {label: [_lowest(one) for one in found] for label, found in matrices.items()},
        }

    def page(self, result: Result) -> str:
        return toy_rank_page.page(result)

    def charts(self, result: Result, folder: Path) -> None:
        toy_rank_page.charts(result, folder)


def errors(found: Tensor, reference: Tensor) -> list[float]:
    """Return the diagonal and the off-diagonal error."""
    difference, diagonal = found - reference, reference.diagonal()
    off = reference - diagonal.diag()
    return [
        float(difference.diagonal().norm() / diagonal.norm()),
        float((difference - difference.diagonal().diag()).norm() / off.norm()),
    ]


def _information(laplace: infoform.Laplace, structure: Structure) -> Tensor:  # (G * A, G * A)
    return laplace.posterior(structure=structure, prior_precision=0.0, num_data=1.0).layers[FIRST].dense()


def _lowest(information: Tensor) -> float:  # (P, P)
    """Return the least eigenvalue over the largest."""
    values = torch.linalg.eigvalsh(information)
    return float(values[0] / values[-1])


EXPERIMENT = ToyRank()
