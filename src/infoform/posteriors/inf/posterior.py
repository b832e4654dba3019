"""INF, the sparse information form: K eigenpairs of a Kronecker eigenbasis plus a diagonal.

    P = N (S U_T M U_Tᵀ S + D) + τ I                Lee et al. 2020, eq. (4); S and M are ours, see docs/math.md

core="full" (ours)             M = U_Tᵀ I U_T (K × K): all that the kept pairs know of each other
core="diagonal" (paper)        M = Λ_T, its diagonal
correction="scaled" (ours)     S² = f / q, D = f − S² q_T: diag(P) is exact at every rank, and D is never negative
correction="additive" (paper)  S = 1,      D = f − q_T: negative for many weights of a real network, there set to 0

f is the exact diagonal, q_T that of U_T M U_Tᵀ and q = q_T + that of the pairs that are not kept (what a truncated
basis leaves out included).  With R = N D + prior = F⁻ᵀF⁻¹ (see row_blocks.py), M = L Lᵀ, C = N^(1/2) S U_T L, B = FᵀC,
BᵀB = CᵀR⁻¹C = Q diag(k) Qᵀ (K × K), P = R + C Cᵀ and

    P⁻¹ = F (I + B Bᵀ)⁻¹ Fᵀ,    (I + B Bᵀ)^(-p) = I − B Q diag((1 − (1 + k)^(-p)) / k) Qᵀ Bᵀ

give samples (p = 1/2), solves (p = 1) and log det P = log det R + Σ log(1 + k), all exact.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import Self

from infoform.common.checks import check_choice
from infoform.common.matmul import padded
from infoform.curvature.curvature import Curvature
from infoform.curvature.eigenbasis import (
    SUPPORTS,
    Eigenbasis,
    expanded_diagonal,
    gather_pairs,
    scatter_pairs,
    select_pairs,
    symmetric_eigh,
)
from infoform.likelihoods import OutputCovariance
from infoform.posteriors import log_bytes
from infoform.posteriors.base import LayerPosterior, required, shared_across_priors
from infoform.posteriors.inf.core import below_diagonal, core_root, kept_diagonal
from infoform.posteriors.inf.jacobian_form import InfJacobianSums, JacobianForm, PairCover
from infoform.posteriors.inf.jacobians import OuterForm
from infoform.posteriors.inf.output_rows import OutputRows
from infoform.posteriors.inf.sampling import DrawForm, LowRank, stacked
from infoform.posteriors.jacobian_sums import JacobianSums
from infoform.posteriors.quantise import read_back, round_to, vector_dtype
from infoform.posteriors.row_blocks import STIFF, RowBlocks
from infoform.priors import LayerPrior

CORRECTIONS = ("scaled", "additive")
CORES = ("full", "diagonal")
LARGEST_SQUARE = 16.0  # of S; the residual is that of some examples alone, so q may be next to nothing where f is not
SCALE_OCTAVES = 12.0  # of S² below its largest; what is smaller is as good as 0
LEAST_REMAINDER = {torch.float64: 2.0**-16}  # of f, left in D at any rank where scaled


@dataclass(frozen=True, eq=False)
class InfPosterior(LayerPosterior):
    """Low rank plus diagonal in information form."""

    structure: ClassVar[str] = "inf"
    differences: ClassVar[bool] = True
    tensor_shapes: ClassVar[Mapping[str, str]] = {
        "information": "G A",
        "input_vectors": "A a",
        "gradient_vectors": "G g",
        "eigenvalues": "K",
        "pairs": "2 K",
        "scale_codes": "G A",
        "scale_steps": "2",
        "information_steps": "2",
        "core": "c",
    }
    not_negative: ClassVar[tuple[str, ...]] = ("eigenvalues",)

    prior: LayerPrior
    num_data: float
    information: Tensor  # (G, A): f where scaled, D where additive
    input_vectors: Tensor  # (A, a): the columns of U_A that a kept pair uses
    gradient_vectors: Tensor  # (G, g)
    eigenvalues: Tensor  # Λ_T (K,)
    pairs: Tensor | None = None  # (2, K): rows (of G) and columns (of A) of the kept pairs; None for all of them
    scale_codes: Tensor | None = None  # (G, A) uint8: S², None where additive
    scale_steps: Tensor | None = None  # (2,)
    clipped: int = 0  # weights whose D was negative and set to 0
    information_steps: Tensor | None = None  # (2,), where f (or D) is stored as bytes
    core: Tensor | None = None  # (c (c − 1) / 2,): M below its diagonal, of the first c pairs; None for a diagonal M

    @classmethod
    def from_curvature(
        cls,
        curvature: Curvature,
        *,
        prior: LayerPrior,
        num_data: float,
        rank: int = 100,
        basis: str = "gradient",
        support: str = "top",
        correction: str = "scaled",
        core: str = "full",
        storage: torch.dtype | None = None,
        clip: bool = True,
    ) -> Self:
        exact = required(curvature.diagonal, "diagonal", curvature)
        if basis not in curvature.bases:
            required(None, f"{basis} basis", curvature)
        eigen = curvature.bases[basis]
        _check_options(curvature, eigen, rank, support, correction, core, storage, clip)
        first = required(eigen.core_pairs, f"core of the {basis} basis", curvature) if core == "full" else None
        rows, columns = select_pairs(eigen.eigenvalues, rank=rank, support=support, first=first)
        used_rows, rows_kept = rows.unique(return_inverse=True)
        used_columns, columns_kept = columns.unique(return_inverse=True)
        # rounded first, so that all that follows is exact for what is stored
        gradient_vectors = eigen.gradient_vectors[:, used_rows].contiguous().to(vector_dtype(storage, exact.dtype))
        input_vectors = eigen.input_vectors[:, used_columns].contiguous().to(vector_dtype(storage, exact.dtype))
        eigenvalues = gather_pairs(eigen.eigenvalues, rows, columns)
        coupled = None if first is None else below_diagonal(eigen, rows, columns)
        vectors = input_vectors.to(exact), gradient_vectors.to(exact)
        q_kept = kept_diagonal(*vectors, rows_kept, columns_kept, eigenvalues, coupled)  # (G, A)
        small = max(len(used_rows), len(used_columns)) < 2**15
        pairs = None
        if support != "grid" or coupled is not None:
            pairs = torch.stack([rows_kept, columns_kept]).to(torch.int16 if small else torch.int32)
        low_rank = (input_vectors, gradient_vectors, eigenvalues, pairs)
        if correction == "additive":
            remainder = exact - q_kept
            rounding = torch.finfo(exact.dtype).eps * float(q_kept.max())  # of eigenvectors at a unit without gradient
            clipped = int((remainder < -rounding).sum()) if clip else 0
            remainder = remainder.clamp_min(0) if clip else remainder
            stored, steps = round_to(remainder, storage)
            return cls(prior, num_data, stored, *low_rank, clipped=clipped, core=coupled, information_steps=steps)
        stored, steps = round_to(exact, storage)
        information = read_back(stored, steps, exact.dtype)
        left = eigen.eigenvalues.index_put((rows, columns), torch.zeros_like(eigenvalues))
        q = q_kept + expanded_diagonal(eigen.input_vectors, eigen.gradient_vectors, left)  # (G, A)
        if eigen.residual is not None:
            q += eigen.residual
        # q_T is recomputed where the posterior is used, perhaps in another order of summation: stay below that; and
        # D, which B is divided by, must not be mere rounding where all pairs are kept and there is no prior
        margin = max(
            4 * (len(used_rows) + len(used_columns) + 4) * torch.finfo(q.dtype).eps,
            LEAST_REMAINDER.get(q.dtype, 2.0**-10),
        )
        ratio = torch.where(q > 0, information / q.clamp_min(torch.finfo(q.dtype).tiny), 0)
        squared = ratio.clamp_max(LARGEST_SQUARE) * (1 - margin)
        codes = log_bytes.encode(squared, octaves=SCALE_OCTAVES)
        return cls(prior, num_data, stored, *low_rank, *codes, core=coupled, information_steps=steps)

    @classmethod
    def check_stored(cls, tensors: Mapping[str, Tensor], what: str) -> None:
        sizes = tensors["gradient_vectors"].shape[1], tensors["input_vectors"].shape[1]
        kept, pairs, core = len(tensors["eigenvalues"]), tensors.get("pairs"), tensors.get("core")
        information = tensors["information"]
        if "scale_codes" in tensors and information.is_floating_point() and bool((information < 0).any()):
            raise ValueError(f"'information' of {what} must not be negative; save it again.")
        if pairs is None and kept != sizes[0] * sizes[1]:
            raise ValueError(f"'eigenvalues' of {what} must be {sizes[0] * sizes[1]}, got {kept}; save it again.")
        if pairs is not None:
            if pairs.is_floating_point() or pairs.is_complex() or pairs.dtype == torch.bool:
                raise ValueError(f"'pairs' of {what} must be whole numbers, got {pairs.dtype}; save it again.")
            if any(bool(((row < 0) | (row >= size)).any()) for row, size in zip(pairs, sizes, strict=True)):
                raise ValueError(f"'pairs' of {what} must lie within {sizes}; save it again.")
        if core is not None:
            width = (1 + math.isqrt(1 + 8 * len(core))) // 2
            if width * (width - 1) // 2 != len(core) or width > kept:
                raise ValueError(f"'core' of {what} must be the triangle of up to {kept} pairs; save it again.")

    @property
    def shape(self) -> tuple[int, int]:
        return self.information.shape[0], self.information.shape[1]

    @property
    def rank(self) -> int:
        """Return K, the number of kept eigenpairs (the paper's L where support="grid")."""
        return len(self.eigenvalues)

    @property
    def kept_energy(self) -> float:
        return float(self.eigenvalues.double().sum())

    @property
    def dtype(self) -> torch.dtype:
        return self.eigenvalues.dtype

    @property
    def device(self) -> torch.device:
        return self.information.device

    @property
    def output_width(self) -> int:
        return 1 + self.rank

    @property
    def note(self) -> str:
        if not self.clipped:
            return ""
        return f"additive correction clipped at 0 for {self.clipped / self.information.numel():.0%} of its weights"

    @shared_across_priors
    def _input_vectors(self) -> Tensor:  # (A, a)
        return self.input_vectors.to(self.dtype)

    @shared_across_priors
    def _padded_vectors(self) -> Tensor:  # (A, a or some more)
        return padded(self._input_vectors)

    @shared_across_priors
    def _gradient_vectors(self) -> Tensor:  # (G, g)
        return self.gradient_vectors.to(self.dtype)

    @shared_across_priors
    def scale(self) -> Tensor | None:  # S (G, A); None for 1
        if self.scale_codes is None or self.scale_steps is None:
            return None
        return log_bytes.decode(self.scale_codes, self.scale_steps, self.dtype).sqrt()

    @shared_across_priors
    def remainder(self) -> Tensor:  # D (G, A)
        """Return D, from what is stored: the diagonal stays exact whatever was rounded."""
        information = self._information()
        if self.scale is None:
            return information
        return information - self.scale**2 * self._kept_diagonal()

    def _information(self) -> Tensor:  # (G, A)
        return read_back(self.information, self.information_steps, self.dtype)

    def transform(self, noise: Tensor) -> Tensor:
        return self.transform_(noise.clone())

    def transform_(self, noise: Tensor) -> Tensor:
        self._draws.transform_(noise.view(-1, *self.shape))
        return noise

    @property
    def alike(self) -> Hashable:
        return self.shape, self.dtype, self.device, self.prior.rank == 0

    @classmethod
    def transform_batched(cls, layers: Sequence[Self]) -> Callable[[Tensor], None]:
        forms = [layer._draws for layer in layers]
        for layer in layers:  # whose numbers the stack has; another thread may have made one, too
            layer.__dict__.pop("_draws", None)
        return stacked(forms).transform_

    def solve(self, x: Tensor) -> Tensor:
        vectors, grown, _ = self._spectrum
        y = self._rows.solve(x)
        inner = self._project(y) @ vectors / grown**2 @ vectors.T  # (1 − (1+k)^(-1)) / k
        return y - self._rows.solve(self._expand(inner))

    def quadratic_form(self, x: Tensor) -> Tensor:
        return self._rows.quadratic_form(x) + (self._project(x) ** 2).sum(-1)

    def covariance(self, jacobians: Tensor) -> Tensor:
        sums = self.jacobian_sums()
        for one in jacobians:
            sums.add(one)
        return sums.covariance()

    @property
    def keeps_jacobians(self) -> bool:
        return False

    def jacobian_sums(self) -> JacobianSums:
        return InfJacobianSums(self._jacobians)

    def outer_covariance(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        return self._outer.covariance(inputs, outputs)

    def output_covariance(self, inputs: Tensor) -> OutputCovariance:
        return self._output_rows.covariance(inputs)

    def log_det(self) -> Tensor:
        return self._rows.log_det() + self._spectrum[2].log1p().sum()

    def diagonal(self) -> Tensor:
        kept = self._kept_diagonal() if self.scale is None else self._information() - self.remainder
        return self._rows.diagonal_of() + self.num_data * kept

    def dense(self) -> Tensor:
        rows, columns = self.indices
        kept = self._gradient_vectors[:, None, rows] * self._input_vectors[None, :, columns]  # (G, A, K)
        if self.scale is not None:
            kept = self.scale.unsqueeze(-1) * kept
        kept = kept.flatten(0, 1) @ self._factor
        return self._rows.dense() + kept @ kept.T

    @shared_across_priors
    def indices(self) -> tuple[Tensor, Tensor]:
        if self.pairs is not None:
            return self.pairs[0].long(), self.pairs[1].long()
        rows, columns = self.gradient_vectors.shape[1], self.input_vectors.shape[1]
        every = torch.arange(rows * columns, device=self.device)
        return every // columns, every % columns

    def _kept_diagonal(self) -> Tensor:  # q_T (G, A)
        return kept_diagonal(self._input_vectors, self._gradient_vectors, *self.indices, self.eigenvalues, self.core)

    @cached_property
    def _rows(self) -> RowBlocks:  # R: all but the kept eigenpairs
        return RowBlocks(self.num_data * self.remainder + self.prior.precision, self.prior)

    @cached_property
    def _outer(self) -> OuterForm:
        rows, columns = self.indices
        order = columns.argsort(stable=True)
        counts = columns.bincount(minlength=self._input_vectors.shape[1])
        return OuterForm(
            inverse=self._rows.inverse,
            scaled_inverse=self._scaled_inverse,
            columns=self._input_vectors,
            factor=self._rows.factor,
            split=None if self._rows.factor is None else self._rows.split,
            taken=self._taken,
            rows=self._gradient_vectors[:, rows[order]].T.contiguous(),
            bounds=[0, *counts.cumsum(0).tolist()],
            whitener=self._whitener[order],
        )

    @cached_property
    def _jacobians(self) -> JacobianForm:
        rows, taken = self._rows, self._taken
        rank = 0 if rows.factor is None else rows.factor.shape[1]
        return JacobianForm.of(
            inverse=rows.inverse,
            scale=self.scale,
            split=rows.split if rows.stiffness > STIFF else None,
            factor=rows.factor,
            root=None if taken is None else taken[:, :, :rank].contiguous(),
            taken=None if taken is None else taken[:, :, rank:],
            pairs=self.indices,
            cover=self._cover,
            input_vectors=self._input_vectors,
            gradient_vectors=self._gradient_vectors,
            whitener=self._whitener,
        )

    @shared_across_priors
    def _cover(self) -> PairCover:
        return PairCover.of(*self.indices)

    @cached_property
    def _output_rows(self) -> OutputRows:
        vectors, grown, _ = self._spectrum
        rows, columns = self.indices
        return OutputRows(
            inverse=self._rows.inverse,
            scaled_inverse=self._scaled_inverse,
            columns=self._input_vectors,
            factor=self._rows.factor,
            split=None if self._rows.factor is None else self._rows.split,
            taken=self._taken,
            pair_rows=self._gradient_vectors[:, rows],
            pair_columns=columns,
            whitener=self._factor @ (vectors / grown),
        )

    @cached_property
    def _draws(self) -> DrawForm:
        vectors, grown, _ = self._spectrum
        rows, columns = self.indices
        scaled, root = self._factor @ vectors, self._rows.root
        return DrawForm(
            root=root[None],
            scaled_root=(root if self.scale is None else self.scale * root)[None],
            gradient_vectors=self._gradient_vectors[None],
            input_vectors=self._padded_vectors[None],
            positions=(rows * self._padded_vectors.shape[1] + columns)[None],
            shrink=(scaled / (grown * (grown + 1)))[None],  # written so that nothing cancels as k goes to 0
            grow=scaled.T[None],
            width=self._input_vectors.shape[1],
            low_rank=self._low_rank(),
        )

    def _low_rank(self) -> LowRank | None:
        factor, shared = self._rows.factor, self._row_shared
        if factor is None or shared is None:
            return None
        wide = padded(shared)
        parts = (factor, padded(factor), self._rows.half_middle, wide.to(self.dtype), self._rows.solved_shared(wide))
        return LowRank(*(part[None] for part in parts))

    @cached_property
    def _scaled_inverse(self) -> Tensor:  # S D'^(-1) (G, A)
        return self._rows.scaled_inverse(self.scale)

    @cached_property
    def _whitener(self) -> Tensor:  # N^(1/2) L Q (1 + k)^(-1/2) (K, K)
        vectors, grown, _ = self._spectrum
        return self._factor @ (vectors / grown)

    @cached_property
    def _taken(self) -> Tensor | None:  # (G, p, p + a): what the prior's low rank takes from variances and from pairs
        if self._row_shared is None:
            return None
        return self._rows.taken(self._rows.whitened_shared(self._row_shared))

    @cached_property
    def _row_shared(self) -> Tensor | None:  # (G, p, a), in float64
        return None if self.prior.rank == 0 else self._rows.row_shared(self.scale, self._input_vectors)

    @cached_property
    def _spectrum(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return Q (K, K), (1 + k)^(1/2) and k (K,), the last in float64.

        Q diag Qᵀ is never multiplied out: where k spans many magnitudes its small part would drown in rounding.
        """
        self._check_invertible()
        gram = self._rows.gram(
            self.scale, self._input_vectors, self._gradient_vectors, *self.indices, shared=self._row_shared
        )
        factor = math.sqrt(self.num_data) * self._root
        values, vectors = symmetric_eigh(factor.T @ gram @ factor, name="")
        return vectors.to(self.dtype), (1 + values).sqrt().to(self.dtype), values

    @shared_across_priors
    def _root(self) -> Tensor:  # L (K, K), in float64
        return core_root(self.eigenvalues, self.core)

    @cached_property
    def _factor(self) -> Tensor:  # N^(1/2) L (K, K)
        return (math.sqrt(self.num_data) * self._root).to(self.dtype)

    def _project(self, x: Tensor) -> Tensor:  # Cᵀ x: (..., G, A) -> (..., K)
        return self._gather(x if self.scale is None else self.scale * x)

    def _expand(self, z: Tensor) -> Tensor:  # C z: (..., K) -> (..., G, A)
        expanded = self._scatter(z)
        return expanded if self.scale is None else self.scale * expanded

    def _gather(self, x: Tensor) -> Tensor:  # N^(1/2) Lᵀ U_Tᵀ x: (..., G, A) -> (..., K)
        u, v = self._gradient_vectors.T, self._input_vectors
        inner = u @ (x @ v) if v.shape[1] <= u.shape[0] else (u @ x) @ v  # the narrow side first
        return gather_pairs(inner, *self.indices) @ self._factor

    def _scatter(self, z: Tensor) -> Tensor:  # N^(1/2) U_T L z: (..., K) -> (..., G, A)
        u, v = self._gradient_vectors, self._input_vectors.T
        inner = scatter_pairs(z @ self._factor.T, *self.indices, (u.shape[1], v.shape[0]))
        return (u @ inner) @ v if v.shape[0] <= u.shape[1] else u @ (inner @ v)

    def _check_invertible(self) -> None:
        diagonal = self._rows.diagonal
        if bool((diagonal > 0).all()):
            return
        precision = self.diagonal()
        # at a unit without gradient eigenvectors are 0 only up to rounding, which is no information
        rounding = 0.0 if self.scale is not None else torch.finfo(self.dtype).eps * float(precision.max())
        informed = precision > rounding
        bad = int(((diagonal <= 0) & informed).sum())
        if bad or bool((diagonal < 0).any()):
            raise ValueError(
                f"with this prior_precision the diagonal part of the precision is not positive for {bad} weights that "
                "have information; give a prior_precision above 0, or use correction='scaled'."
            )


def _check_options(
    curvature: Curvature,
    eigen: Eigenbasis,
    rank: int,
    support: str,
    correction: str,
    core: str,
    storage: torch.dtype | None,
    clip: bool,
) -> None:
    check_choice("support", support, SUPPORTS)
    check_choice("correction", correction, CORRECTIONS)
    if storage == torch.uint8 and not clip:
        raise ValueError("storage='uint8' keeps a logarithm, which a negative D has not; leave clip=False out.")
    check_choice("core", core, CORES)
    size = eigen.eigenvalues.numel()
    if not 1 <= rank <= size:
        of = "G * A" if size == curvature.shape[0] * curvature.shape[1] else "the pairs of the truncated basis"
        raise ValueError(f"rank must be between 1 and {size} (= {of}) for layer '{curvature.name}', got {rank}.")
