"""The curvature of every layer: what a fit is asked for, and what it returns.

I = E_n Σ_v vec(∇) vec(∇)ᵀ,    an average over examples, free of prior and data-set size
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

from infoform.eigenbasis import Eigenbasis
from infoform.examples import CHUNK_BYTES
from infoform.likelihoods import DataSummary
from infoform.spectrum import InputSpectrum
from infoform.statistics import EXACT_LIMIT, WHOLE_INPUTS, WHOLE_RESIDUAL, part_weights

BASES = ("gradient", "activation")


@dataclass(frozen=True)
class Curvature:
    """Statistics of one layer, each an average over examples; None where the fit was not asked for it."""

    name: str
    shape: tuple[int, int]  # (G, A)
    positions: float | None = None  # E[S]: how often an example uses the weight
    input_factor: Tensor | None = None  # (A, A): E Σ_s a aᵀ, averaged over the groups of a grouped convolution
    inputs: InputSpectrum | None = None  # of the input factor, where that is not kept whole
    gradient_factor: Tensor | None = None  # (G, G): E Σ_v,s g gᵀ
    diagonal: Tensor | None = None  # f (G, A): E Σ_v ∇²
    bases: Mapping[str, Eigenbasis] = field(default_factory=dict)  # by its name in BASES
    block: Tensor | None = None  # (G * A, G * A): the exact information matrix, row-major


@dataclass(frozen=True)
class Wanted:
    """Which statistics a fit is to collect."""

    inputs: bool = False
    factors: bool = False
    diagonal: bool = False
    bases: frozenset[str] = frozenset()
    columns: int | None = None  # of large bases that are enough; None for all
    cores: tuple[str, ...] = ()  # bases some of whose pairs are measured together,
    core_size: int = 0  # as many of them
    block: bool = False

    def __or__(self, other: "Wanted") -> "Wanted":
        return Wanted(
            inputs=self.inputs or other.inputs,
            factors=self.factors or other.factors,
            diagonal=self.diagonal or other.diagonal,
            bases=self.bases | other.bases,
            columns=_most(one.columns for one in (self, other) if one.bases),
            cores=tuple(sorted({*self.cores, *other.cores})),
            core_size=max(self.core_size, other.core_size),
            block=self.block or other.block,
        )


_WHOLE = ("input_factor", "gradient_factor", "diagonal", "block")  # the tensors of a Curvature besides its bases
CORE_LIMIT = 512  # pairs that are measured together at most: that many squared numbers a layer
EVERYTHING = Wanted(
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


def sifts(wanted: Wanted, settings: FitSettings) -> bool:
    """Whether bases are found from, and measured on, chosen examples: where a diagonal of all of them makes up for it.

    Kronecker factors, and bases found from them, are those of every example.
    """
    if settings.basis_floor == 0:
        return False
    single = settings.fisher != "exact" and settings.fisher_samples == 1
    return single and wanted.diagonal and wanted.bases == {"gradient"} and not wanted.factors


def reads_again(wanted: Wanted, settings: FitSettings) -> bool:
    """Whether the second pass reads chosen examples alone: where the first has summed the diagonal of the others."""
    return settings.basis_data == 1 and sifts(wanted, settings)


@dataclass(frozen=True)
class Fit:
    """The result of a fit: the curvature by layer, and why a layer that was asked for has none."""

    curvature: Mapping[str, Curvature]
    summary: DataSummary
    unreached: Mapping[str, str]


def merge_fits(
    one: Fit,
    other: Fit,
    *,
    fetch: Callable[[Curvature], Curvature] = lambda curvature: curvature,
    keep: Callable[[Curvature], Curvature] = lambda curvature: curvature,
) -> Fit:
    """Return the fit of both data sets together; the bases of both must be the same.

    `fetch` brings a layer of the first to where the second is, `keep` puts the merged one to where it is to be.
    """
    first, second = one.summary, other.summary
    total = first.num_examples + second.num_examples
    share = second.num_examples / total
    residual_share = _part_share(first.num_examples, total, whole=WHOLE_RESIDUAL)
    inputs_share = _part_share(first.num_examples, total, whole=WHOLE_INPUTS)

    def merge(a: Tensor | None, b: Tensor | None, share: float = share) -> Tensor | None:
        return None if a is None or b is None else a * (1 - share) + b * share

    merged = {}
    for name in [*one.curvature, *(name for name in other.curvature if name not in one.curvature)]:
        a = fetch(one.curvature[name]) if name in one.curvature else _no_information(other.curvature[name])
        b = other.curvature[name] if name in other.curvature else _no_information(a)
        bases = {
            basis: replace(
                eigen,
                eigenvalues=eigen.eigenvalues * (1 - share) + b.bases[basis].eigenvalues * share,
                residual=merge(eigen.residual, b.bases[basis].residual, residual_share),
                core=merge(eigen.core, b.bases[basis].core),
            )
            for basis, eigen in a.bases.items()
        }
        inputs = a.inputs
        if a.inputs is not None and b.inputs is not None:
            diagonal = merge(a.inputs.diagonal, b.inputs.diagonal, inputs_share)
            values = merge(a.inputs.values, b.inputs.values, inputs_share)
            assert diagonal is not None
            assert values is not None
            inputs = InputSpectrum(diagonal, a.inputs.vectors, values)
        positions = None
        if a.positions is not None and b.positions is not None:
            positions = a.positions * (1 - share) + b.positions * share
        whole: dict[str, Any] = {key: merge(getattr(a, key), getattr(b, key)) for key in _WHOLE}
        merged[name] = keep(replace(a, positions=positions, inputs=inputs, bases=bases, **whole))
    log_likelihood = None
    if first.log_likelihood is not None and second.log_likelihood is not None:
        log_likelihood = first.log_likelihood + second.log_likelihood
    unreached = {name: why for name, why in one.unreached.items() if name not in merged}
    return Fit(merged, DataSummary(total, first.num_outputs, log_likelihood), unreached)


def _no_information(like: Curvature) -> Curvature:
    """Return the curvature of a layer that no gradient came back to."""
    tensors, settings = pack_curvature(like)
    basis = ("input_vectors", "gradient_vectors", "core_pairs", "inputs.vectors")
    zeros = {key: value if key.endswith(basis) else torch.zeros_like(value) for key, value in tensors.items()}
    return unpack_curvature(zeros, {**settings, "positions": None if like.positions is None else 0.0})


def pack_curvature(curvature: Curvature) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return a layer's curvature as flat tensors and plain values, for a file."""
    tensors = {key: getattr(curvature, key) for key in _WHOLE}
    for basis, eigen in curvature.bases.items():
        tensors |= {f"{basis}.{one.name}": getattr(eigen, one.name) for one in fields(eigen)}
    if curvature.inputs is not None:
        tensors |= {f"inputs.{one.name}": getattr(curvature.inputs, one.name) for one in fields(curvature.inputs)}
    settings = {"name": curvature.name, "shape": list(curvature.shape), "positions": curvature.positions}
    return {key: value for key, value in tensors.items() if value is not None}, settings


def unpack_curvature(tensors: Mapping[str, Tensor], settings: Mapping[str, Any]) -> Curvature:
    """Undo `pack_curvature`."""
    bases = {}
    for basis in BASES:
        parts = {one.name: tensors.get(f"{basis}.{one.name}") for one in fields(Eigenbasis)}
        if parts["eigenvalues"] is not None:
            bases[basis] = Eigenbasis(**parts)  # type: ignore[arg-type]
    parts = {one.name: tensors.get(f"inputs.{one.name}") for one in fields(InputSpectrum)}
    inputs = None if parts["diagonal"] is None else InputSpectrum(**parts)  # type: ignore[arg-type]
    whole: dict[str, Any] = {key: value for key, value in tensors.items() if "." not in key}
    return Curvature(**{**settings, "shape": tuple(settings["shape"])}, **whole, inputs=inputs, bases=bases)


def _part_share(first: int, total: int, *, whole: int) -> float:
    weights = part_weights(range(total), whole=whole)
    return float(weights[first:].sum() / weights.sum())


def kept_columns(size: int, wanted: Wanted, basis_size: int | str | None) -> int:
    """Return how many leading columns of U_A or U_G a fit keeps, of as many as the layer has inputs or outputs."""
    if isinstance(basis_size, int):
        return min(size, basis_size)
    if basis_size is None or wanted.columns is None or size <= max(EXACT_LIMIT, 2 * wanted.columns):
        return size
    return wanted.columns


def _most(columns: Iterable[int | None]) -> int | None:
    given = list(columns)
    return None if None in given else max((one for one in given if one is not None), default=None)
