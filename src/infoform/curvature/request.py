"""What a fit is asked for: which statistics, and how they are measured."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_

import torch

from infoform.curvature.sketch import EXACT_LIMIT

BASES = ("gradient", "activation")
CORE_LIMIT = 512  # pairs that are measured together at most: that many squared numbers a layer
CHUNK_BYTES = 32 * 2**20  # of patches and per-example gradients held at a time


@dataclass(frozen=True)
class StatisticsRequest:
    """Which statistics a fit is to collect, of every layer or, where `own` says so, of each."""

    inputs: bool = False
    factors: bool = False
    diagonal: bool = False
    bases: frozenset[str] = frozenset()
    columns: int | None = None  # leading columns that are enough of a large basis; None for all
    cores: tuple[str, ...] = ()  # bases for which products of some pairs are measured
    core_size: int = 0  # pairs of a core
    block: bool = False
    own: Mapping[str, "StatisticsRequest"] = field(default_factory=dict)  # by layer, where these differ

    @classmethod
    def by_layers(cls, own: Mapping[str, "StatisticsRequest"]) -> "StatisticsRequest":
        """Return what is asked for of each layer, as one request."""
        return replace(reduce(or_, own.values(), cls()), own=dict(own))

    def of(self, layer: str) -> "StatisticsRequest":
        """Return what is asked for of one layer."""
        return self.own.get(layer, self)

    def of_layer(self, *, only_diagonal: bool) -> "StatisticsRequest":
        """Return what is collected of a layer, of which perhaps nothing but the diagonal is ever measured."""
        return StatisticsRequest(diagonal=True) if only_diagonal else self

    def __or__(self, other: "StatisticsRequest") -> "StatisticsRequest":
        own = {name: self.of(name).whole | other.of(name).whole for name in (*self.own, *other.own)}
        return StatisticsRequest(
            own=own,
            inputs=self.inputs or other.inputs,
            factors=self.factors or other.factors,
            diagonal=self.diagonal or other.diagonal,
            bases=self.bases | other.bases,
            columns=_most(one.columns for one in (self, other) if one.bases),
            cores=tuple(sorted({*self.cores, *other.cores})),
            core_size=max(self.core_size, other.core_size),
            block=self.block or other.block,
        )

    @property
    def whole(self) -> "StatisticsRequest":
        """Return the same without what is asked for of each layer."""
        return replace(self, own={}) if self.own else self


ALL_STATISTICS = StatisticsRequest(
    inputs=True,
    factors=True,
    diagonal=True,
    bases=frozenset(BASES),
    cores=BASES,
    core_size=CORE_LIMIT,
    block=True,
)


@dataclass(frozen=True)
class FitSettings:
    """How the curvature is measured."""

    fisher: str = "mc"
    fisher_samples: int = 1
    basis_data: float = 1.0  # share of the batches that bases are found from
    basis_size: int | str | None = "auto"  # leading columns kept of U_A and of U_G; None for all, or as many as needed
    prior_rank: int = 8  # eigenpairs of the inputs that the activation prior may use
    block_limit: int = 4096  # weights of the largest layer whose exact block is kept
    seed: int = 0
    autocast: torch.dtype | None = None  # of the forward pass; sums are in float32 at least
    chunk: int = CHUNK_BYTES  # bytes of patches and per-example gradients held at a time
    basis_floor: float = 0.1  # share of the mean |v|² below which an example counts for the diagonal alone


def selects_examples(request: StatisticsRequest, settings: FitSettings) -> bool:
    """Whether bases are found from, and measured on, selected examples.

    They may be where the diagonal, which is that of every example, makes up for the examples left out. Kronecker
    factors, and bases found from Kronecker factors, are those of every example.
    """
    if settings.basis_floor == 0:
        return False
    single = settings.fisher != "exact" and settings.fisher_samples == 1
    with_bases = [one for one in request.own.values() or [request] if one.bases]
    return single and all(
        one.diagonal and one.bases == {"gradient"} and not one.factors for one in with_bases or [request]
    )


def rereads_selected(request: StatisticsRequest, settings: FitSettings) -> bool:
    """Whether the second pass reads the selected examples alone, as the first has summed the diagonal of the others."""
    return settings.basis_data == 1 and selects_examples(request, settings)


def kept_columns(size: int, request: StatisticsRequest, basis_size: int | str | None) -> int:
    """Return how many leading columns of U_A or U_G a fit keeps.

    Args:
        size: The inputs or the outputs of the layer.
        request: What the fit is asked for.
        basis_size: The columns that the user asks for; "auto" for as many as the request needs, None for all.
    """
    if isinstance(basis_size, int):
        return min(size, basis_size)
    if basis_size is None or request.columns is None or size <= max(EXACT_LIMIT, 2 * request.columns):
        return size
    return request.columns


def _most(columns: Iterable[int | None]) -> int | None:
    given = list(columns)
    return None if None in given else max((one for one in given if one is not None), default=None)
