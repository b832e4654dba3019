"""INF as a structure: its options, how much of a basis a fit must measure for them, and what a rank takes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

import torch
from torch import Tensor

from infoform.common.checks import check_choice
from infoform.curvature.curvature import Curvature
from infoform.curvature.dimensions import Dimensions
from infoform.curvature.eigenbasis import SUPPORTS, select_pairs
from infoform.curvature.request import BASES, CORE_LIMIT, StatisticsRequest
from infoform.likelihoods import Likelihood
from infoform.posteriors.inf.posterior import CORES, CORRECTIONS, InfPosterior
from infoform.posteriors.quantise import vector_dtype
from infoform.posteriors.structure import STORAGES, Rank, RankCurve, RankedStructure, check_rank, diagonal_bytes
from infoform.priors import LayerPrior

Count = TypeVar("Count", int, Tensor)


@dataclass(frozen=True, kw_only=True)
class Inf(RankedStructure):
    """The sparse information form: some eigenpairs of a Kronecker eigenbasis plus a diagonal.

    Args:
        rank: Eigenpairs kept in every layer (a layer that has fewer keeps all), their share of a layer's weights as a
            float up to 1, or a number for each layer by its name.
        basis: "gradient" (eigenvectors of the second moments of gradients), or "activation" (the paper's).
        support: "top" keeps the largest pairs, "grid" (the paper's) all pairs of the columns that those use.
        correction: "scaled" has an exact diagonal at every rank; "additive" is the paper's.
        core: "full" keeps what the kept pairs know of each other, "diagonal" (the paper's) nothing of it.
        storage: "float32", "bfloat16" or "uint8" for the diagonal; None for the dtype of the statistics.
        clip: Whether an additive correction below zero is set to zero.
        preset: Name of the set of options that the object was made from; `get_structure` sets it.

    Raises:
        ValueError: If an option has a value that it cannot have.

    Example:
        ```python
        laplace = infoform.Laplace(model, "classification", structure=infoform.Inf(rank=200, storage="bfloat16"))
        ```
    """

    name: ClassVar[str] = "inf"
    posterior: ClassVar[type[InfPosterior]] = InfPosterior

    rank: Rank = 100
    basis: str = "gradient"
    support: str = "top"
    correction: str = "scaled"
    core: str = "full"
    storage: str | None = None
    clip: bool = True
    preset: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        check_rank(self.rank)
        check_choice("basis", self.basis, BASES)
        check_choice("support", self.support, SUPPORTS)
        check_choice("correction", self.correction, CORRECTIONS)
        check_choice("core", self.core, CORES)
        check_choice("storage", self.storage, [None, *STORAGES])

    @property
    def warning(self) -> str:
        if self.correction != "additive":
            return ""
        shown = f"structure='{self.preset}'" if self.preset else "correction='additive'"
        done = "set to 0 (coverage() says for how many)" if self.clip else "kept, and most of what is asked of it fails"
        return (
            f"{shown} is the paper's form as printed, whose precision is not positive definite for most networks: its "
            f"diagonal is negative for some weights, where it is {done}; use structure='inf' unless you compare with "
            "the paper."
        )

    def statistics(self) -> StatisticsRequest:
        coupled = self.core == "full"
        return StatisticsRequest(
            diagonal=True,
            bases=frozenset({self.basis}),
            columns=_enough_columns(self.rank, self.basis),
            cores=(self.basis,) if coupled else (),
            core_size=_enough_pairs(self.rank) if coupled else 0,
        )

    def build(self, curvature: Curvature, *, prior: LayerPrior, num_data: float) -> InfPosterior:
        weights = math.prod(curvature.shape)
        known = curvature.bases.get(self.basis)
        available = weights if known is None else known.eigenvalues.numel()
        return InfPosterior.from_curvature(
            curvature,
            prior=prior,
            num_data=num_data,
            rank=self.rank_of(curvature.name, weights=weights, available=available),
            basis=self.basis,
            support=self.support,
            correction=self.correction,
            core=self.core,
            storage=None if self.storage is None else STORAGES[self.storage],
            clip=self.clip,
        )

    def planned_bytes(self, size: Dimensions, *, layer: str) -> int:
        # at most: every pair with columns of its own
        rank = self.planned_rank(size, layer=layer)
        rows, columns = min(rank, size.columns[0]), min(rank, size.columns[1])
        pairs = rows * columns if self.support == "grid" else rank
        return self.bytes_of(size, pairs=pairs, rows=rows, columns=columns, coupled=min(pairs, size.core))

    @property
    def planned_exactly(self) -> bool:
        return False  # which columns the pairs use depends on the data

    def default_prior(self, likelihood: Likelihood) -> str:
        return likelihood.default_prior if not self.preset else "isotropic"  # the paper's forms keep the paper's prior

    def bytes_of(self, size: Dimensions, *, pairs: Count, rows: Count, columns: Count, coupled: Count) -> Count:
        """Return the bytes of a layer's posterior with this many kept pairs.

        Args:
            size: The sizes of the layer.
            pairs: Kept pairs.
            rows: Columns of U_G that they use.
            columns: Columns of U_A that they use.
            coupled: How many of the pairs were measured together, for a full core.

        Returns:
            Bytes, without the prior's.
        """
        item = size.dtype.itemsize
        fixed = diagonal_bytes(size, self.storage)
        if self.correction == "scaled":
            fixed += size.weights + 2 * torch.float64.itemsize  # codes of S² and their scale
        full = self.core == "full"
        core = item * (coupled * (coupled - 1) // 2) if full else 0
        # which pairs are kept is told where these are not all of the columns', or in an order of their own
        index = 0 if self.support == "grid" and not full else 2 + 2 * ((rows >= 2**15) | (columns >= 2**15))
        dtype = vector_dtype(None if self.storage is None else STORAGES[self.storage], size.dtype)
        vectors = (size.outputs * rows + size.inputs * columns) * dtype.itemsize
        return fixed + vectors + core + pairs * (item + 2 * index)

    def rank_curve(self, curvature: Curvature, *, max_rank: int) -> RankCurve:
        assert curvature.diagonal is not None
        eigen = curvature.bases[self.basis]
        used = (eigen.gradient_vectors.shape[1], eigen.input_vectors.shape[1])
        size = Dimensions(*curvature.shape, used, curvature.diagonal.dtype)
        values = eigen.eigenvalues.double()
        limit = min(max_rank, values.numel())
        first = eigen.core_pairs if self.core == "full" else None
        # ranks are prefixes of this order
        rows, columns = select_pairs(eigen.eigenvalues, rank=limit, support="top", first=first)
        row_times, column_times = _first_times(rows, values.shape[0]), _first_times(columns, values.shape[1])
        used_rows, used_columns = (_counts(times, limit) for times in (row_times, column_times))
        if self.support == "grid":  # a pair is kept as soon as its row and its column are
            entered = torch.maximum(row_times[:, None], column_times).flatten().cpu()
            energy = torch.bincount(entered, weights=values.flatten().cpu(), minlength=limit + 1)[:limit].cumsum(0)
            pairs = used_rows * used_columns
            coupled = torch.zeros_like(pairs)
            if first is not None:
                times = torch.maximum(row_times[first[0]], column_times[first[1]]).cpu()
                coupled = torch.bincount(times, minlength=limit + 1)[:limit].cumsum(0)
        else:
            energy = values[rows, columns].cpu().cumsum(0)
            pairs = torch.arange(1, limit + 1)
            coupled = pairs.clamp_max(0 if first is None else first.shape[1])
        nbytes = self.bytes_of(size, pairs=pairs, rows=used_rows, columns=used_columns, coupled=coupled)
        allowed = max(1, int((pairs <= max_rank).sum()))
        return RankCurve(nbytes[:allowed], energy[:allowed], eigen.total_energy)


def _enough_pairs(rank: Rank) -> int:
    """Return how many pairs to measure together: some more than are kept, since the choice comes first."""
    if isinstance(rank, float):
        return CORE_LIMIT
    most = max(rank.values()) if isinstance(rank, Mapping) else rank
    return min(CORE_LIMIT, most + most // 4)


def _enough_columns(rank: Rank, basis: str) -> int | None:
    """Return how many leading columns of either side hold the largest pairs; None for all.

    Pairs (i, j) of large Λ lie where both i and j are small: 100 of them use some 30 columns of a LeNet's layers.
    Of the paper's basis, whose order is not that of Λ, and for a share of all pairs, all columns are kept.
    """
    if basis != "gradient" or isinstance(rank, float):
        return None
    most = max(rank.values()) if isinstance(rank, Mapping) else rank
    return max(64, 4 * math.isqrt(most) + 4)


def _first_times(indices: Tensor, count: int) -> Tensor:  # (K,) -> (count,): when each index is first used; K if never
    never = torch.full((count,), len(indices), device=indices.device)
    return never.scatter_reduce(0, indices, torch.arange(len(indices), device=indices.device), "amin")


def _counts(times: Tensor, limit: int) -> Tensor:  # -> (limit,): how many are used at rank 1, 2, ...
    return torch.bincount(times.cpu(), minlength=limit + 1)[:limit].cumsum(0)
