"""The settings of a posterior: checked once, when they are given, and saved with it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from infoform.common.bytes import read_bytes
from infoform.common.checks import check_choice, check_whole
from infoform.curvature.curvature import Curvature
from infoform.curvature.eigenbasis import SUPPORTS
from infoform.curvature.request import BASES, FitSettings
from infoform.likelihoods import FISHER_KINDS
from infoform.posteriors import CORES, CORRECTIONS, DAMPINGS, PRESETS, STRUCTURES

AUTOCASTS = {"bfloat16": torch.bfloat16, "float16": torch.float16}
STORAGES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "uint8": torch.uint8}
Rank = int | float | Mapping[str, int]


@dataclass(frozen=True)
class Settings:
    """What `Laplace` is told besides model, likelihood and prior."""

    structure: str
    rank: Rank
    basis: str
    support: str
    correction: str
    core: str
    damping: str
    storage: str | None
    basis_size: int | str | None
    basis_data: float
    fisher: str
    fisher_samples: int
    layers: Sequence[str] | None
    statistics: str
    block_limit: int
    prior_rank: int
    autocast: str | None
    chunk: int | str
    seed: int
    basis_floor: float = 0.1  # files of earlier versions do not have it

    def __post_init__(self) -> None:
        check_choice("structure", self.structure, [*STRUCTURES, *PRESETS])
        check_choice("basis", self.basis, BASES)
        check_choice("support", self.support, SUPPORTS)
        check_choice("correction", self.correction, CORRECTIONS)
        check_choice("core", self.core, CORES)
        check_choice("damping", self.damping, DAMPINGS)
        check_choice("storage", self.storage, [None, *STORAGES])
        check_choice("autocast", self.autocast, [None, *AUTOCASTS])
        read_bytes(self.chunk)
        check_choice("fisher", self.fisher, FISHER_KINDS)
        check_choice("statistics", self.statistics, ("needed", "all"))
        check_rank(self.rank)
        check_whole("fisher_samples", self.fisher_samples)
        check_whole("block_limit", self.block_limit)
        check_whole("prior_rank", self.prior_rank, least=0)
        if self.basis_size not in (None, "auto"):
            check_whole("basis_size", self.basis_size)
        if not 0 < self.basis_data <= 1:
            raise ValueError(f"basis_data must be a share of the data, above 0 and at most 1, got {self.basis_data}.")
        if not 0 <= self.basis_floor < 1:
            raise ValueError(
                "basis_floor must be a share of the examples' mean energy, at least 0 (which leaves none out) and "
                f"below 1, got {self.basis_floor}."
            )
        if isinstance(self.layers, str):
            raise TypeError(
                f"layers must be a list of layer names, got the string {self.layers!r}; write layers=[{self.layers!r}]."
            )

    def for_fit(self) -> FitSettings:
        return FitSettings(
            self.fisher,
            self.fisher_samples,
            self.basis_data,
            self.basis_size,
            self.prior_rank,
            self.block_limit,
            self.seed,
            None if self.autocast is None else AUTOCASTS[self.autocast],
            read_bytes(self.chunk),
            self.basis_floor,
        )

    def resolve(self, structure: str | None, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return the structure behind a name, and the options that it takes: given ones, a preset's, or these."""
        structure = structure or self.structure
        check_choice("structure", structure, [*STRUCTURES, *PRESETS])
        kind, preset = PRESETS.get(structure, (structure, {}))
        takes = STRUCTURES[kind].OPTIONS
        for name in options:
            if name not in takes:
                raise TypeError(
                    f"structure {structure!r} takes the options {', '.join(takes) or 'none'}, got {name!r}."
                )
        chosen = {name: getattr(self, name) for name in takes if hasattr(self, name)} | preset | dict(options)
        if "rank" in chosen:
            check_rank(chosen["rank"])
        if "basis" in chosen:
            check_choice("basis", chosen["basis"], BASES)
        if "storage" in chosen:
            check_choice("storage", chosen["storage"], [None, *STORAGES])
            chosen["storage"] = None if chosen["storage"] is None else STORAGES[chosen["storage"]]
        return kind, chosen


def layer_rank(rank: Rank, curvature: Curvature, basis: str) -> int:
    """Return how many eigenpairs one layer keeps: no more than it has, unless a number was given for it by name."""
    size = math.prod(curvature.shape)
    available = curvature.bases[basis].eigenvalues.numel() if basis in curvature.bases else size
    if isinstance(rank, Mapping):
        if curvature.name not in rank:
            raise ValueError(f"rank must have a value for each layer, got none for '{curvature.name}'; add it.")
        return rank[curvature.name]
    return min(available, max(1, round(rank * size))) if isinstance(rank, float) else min(available, rank)


def check_rank(rank: object) -> None:
    """Raise a ValueError unless the rank is a number of eigenpairs, a share of them, or given by layer."""
    if isinstance(rank, Mapping):
        for value in rank.values():
            check_whole("rank", value)
    elif isinstance(rank, float):
        if not 0 < rank <= 1:
            raise ValueError(f"rank as a share of a layer's weights must be above 0 and at most 1, got {rank}.")
    else:
        check_whole("rank", rank)
