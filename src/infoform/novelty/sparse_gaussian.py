"""A Gaussian of pooled inputs in sparse form: means, standard deviations, and leading eigenpairs of the correlations.

    Σ ≈ S (R + F Fᵀ) S,    S = diag(deviation),    R = 1 − diag(F Fᵀ)

F are the leading eigenpairs of the correlation matrix, in bytes, and R, the diagonal remainder, follows from them, so
that variances are exact whatever was rounded. But R is at least FLOOR: what hardly varied is not all that counts.
Classes have means of their own, μ_c = μ + S P_c Q with few rows of Q, and share Σ. With y = S⁻¹ (x − μ):

    d² = min_c (y − P_c Q)ᵀ (R + F Fᵀ)⁻¹ (y − P_c Q)
    (R + F Fᵀ)⁻¹ = R⁻¹ − R⁻¹ F M Mᵀ Fᵀ R⁻¹,    (M Mᵀ)⁻¹ = 1 + Fᵀ R⁻¹ F                     Woodbury's identity

All of it is in float64: d² is a difference of sums, and its logarithm varies little from one known example to the next.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property

import torch
from torch import Tensor

from infoform.common.float64 import in_double

RANK = 32  # eigenpairs of a layer, at most
FLOOR = 1e-3  # of the remainder R, as a share of a column's variance
CONSTANT = 1e-4  # least deviation, as a share of the size of a column or of all columns: of one that never varied
TINY = 1e-20  # the same where all columns are zero
EXAMPLES_PER_PAIR = 4  # examples that each eigenpair must rest on


@dataclass(frozen=True, eq=False)
class SparseGaussian:
    """C means and one covariance of D numbers."""

    counts: Tensor  # (C,): examples of each class
    mean: Tensor  # μ (D,): of all examples
    deviation: Tensor  # S (D,): within classes
    factor: Tensor  # (D, K) bytes: F is this times `scale`
    scale: Tensor  # (K,)
    places: Tensor  # P (C, r): of the means of classes
    directions: Tensor  # Q (r, D)

    @property
    def nbytes(self) -> int:
        """Return the bytes of all fields."""
        return sum(one.nbytes for one in self.tensors().values())

    def tensors(self) -> dict[str, Tensor]:
        """Return all fields by name, for a file; but those without numbers, which have no place in it."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in values.items() if value.numel()}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> "SparseGaussian":
        """Return the Gaussian with these fields."""
        columns, classes = len(tensors["mean"]), len(tensors["counts"])
        empty = {
            "factor": torch.zeros(columns, 0, dtype=torch.int8),
            "scale": torch.zeros(0),
            "places": torch.zeros(classes, 0, dtype=torch.float16),
            "directions": torch.zeros(0, columns, dtype=torch.float16),
        }
        return cls(**{**empty, **tensors})

    def log_distance(self, x: Tensor) -> Tensor:  # (N, D) -> (N,)
        """Return log(d² / D) of the nearest class; infinite where a number is not finite."""
        x = in_double(x)
        form = self._form(x.device)
        # z = R^(-1/2) y, so that d² = |z|² − |Mᵀ Fᵀ R^(-1/2) z|²
        z = torch.addcmul(form.offset, x, form.slope)
        if torch.compiler.is_exporting():  # a file keeps the bytes
            rest = z * form.root  # R⁻¹ y
            along, inner = rest @ self.factor.to(x) @ form.mixing, rest @ self.directions.to(x).T
            places = self.places.to(x)
        else:
            along, inner, places = z @ form.update, z @ form.inward.T, form.places  # (N, K), (N, r), (C, r)
        squared = torch.linalg.vector_norm(z, dim=1).square_() - torch.linalg.vector_norm(along, dim=1).square_()
        if len(form.class_squares) > 1:
            inner = inner - along @ form.along_directions.T
            squared = squared + (form.class_squares - 2 * inner @ places.T).amin(1)
        least = 1e-12 * x.shape[1]
        logs: Tensor = (squared.clamp_min(least) / x.shape[1]).log()
        return logs.nan_to_num(nan=math.inf, posinf=math.inf)

    def dense(self) -> tuple[Tensor, Tensor]:  # (C, D), (D, D)
        """Return the means and the covariance, for tests."""
        deviation, factor = self.deviation.double(), self.loadings()
        correlation = factor @ factor.T + self.remainder().diag()
        return self.means(), deviation[:, None] * correlation * deviation

    def means(self) -> Tensor:  # (C, D)
        """Return the means of the classes in float64."""
        return self.mean.double() + self.deviation.double() * (self.places.double() @ self.directions.double())

    def loadings(self) -> Tensor:  # F (D, K)
        """Return the leading eigenpairs of the correlations in float64."""
        return self.factor.double() * self.scale.double()

    def remainder(self) -> Tensor:  # R (D,)
        """Return the diagonal remainder in float64."""
        return (1 - self.loadings().square().sum(1)).clamp_min(FLOOR)

    def _form(self, device: torch.device) -> "_DistanceForm":
        if device not in self._forms:
            self._forms[device] = _DistanceForm.of(self, device)
        return self._forms[device]

    @cached_property
    def _forms(self) -> dict[torch.device, "_DistanceForm"]:
        return {}


@dataclass(frozen=True, eq=False)
class _DistanceForm:
    """What a distance is computed with, on one device in float64."""

    slope: Tensor  # (D,): S⁻¹ R^(-1/2)
    offset: Tensor  # (D,): minus the mean times that
    root: Tensor  # (D,): R^(-1/2)
    mixing: Tensor  # (K, K): what turns the bytes of F into F M
    update: Tensor  # R^(-1/2) F M (D, K)
    inward: Tensor  # Q R^(-1/2) (r, D)
    along_directions: Tensor  # Q R⁻¹ F M (r, K)
    class_squares: Tensor  # (C,): of P_c Q
    places: Tensor  # P (C, r)

    @classmethod
    def of(cls, one: SparseGaussian, device: torch.device) -> "_DistanceForm":
        root = one.remainder().rsqrt()
        loadings = one.loadings() * root[:, None]  # R^(-1/2) F
        core = torch.eye(loadings.shape[1], dtype=torch.float64) + loadings.T @ loadings
        lower = torch.linalg.cholesky(core)
        mixing = torch.linalg.solve_triangular(lower, one.scale.double().diag(), upper=False).T
        places, inward = one.places.double(), one.directions.double() * root
        update = torch.linalg.solve_triangular(lower, loadings.T, upper=False).T
        along = inward @ update
        squares = ((places @ (inward @ inward.T - along @ along.T)) * places).sum(1)
        squares = squares.masked_fill(one.counts == 0, math.inf)  # a class without examples has no mean
        slope = root / one.deviation.double()
        found = (slope, -one.mean.double() * slope, root, mixing, update, inward, along, squares, places)
        return cls(*(part.to(device).contiguous() for part in found))


def sparse_gaussian(
    counts: Tensor,  # (C,)
    means: Tensor,  # (C, D)
    variance: Tensor,  # (D,)
    *,
    rank: int,
    class_rank: int,
    covariance: Tensor | None = None,  # (D, D)
    sketch: Tensor | None = None,  # Σ Ω (D, s)
    random: Tensor | None = None,  # Ω (D, s)
) -> SparseGaussian:
    """Return the sparse form of means and a covariance, which is given whole or by its product with a random matrix.

    Args:
        counts: Examples of each class.
        means: Of each class.
        variance: The diagonal of the covariance.
        rank: Leading eigenpairs that are kept, at most.
        class_rank: Directions in which the means of classes may differ, at most.
        covariance: The covariance within classes.
        sketch: The covariance times `random`, where it is not given whole.
        random: The random matrix Ω.
    """
    examples = counts.sum()
    mean = counts @ means / examples
    second = variance.clamp_min(0) + counts @ means.square() / examples
    size = torch.maximum(second.sqrt(), second.mean().sqrt())
    deviation = torch.maximum(variance.clamp_min(0).sqrt(), CONSTANT * size).clamp_min(TINY)
    kept = min(rank, len(mean), int(examples) // EXAMPLES_PER_PAIR)
    if covariance is not None:
        loadings = leading_pairs(covariance / deviation[:, None] / deviation, kept)
    else:
        assert sketch is not None
        assert random is not None
        loadings = _sketched_pairs(sketch / deviation[:, None], random, sketch, kept)
    present = counts > 0
    offsets = torch.where(present[:, None], (means - mean) / deviation, 0)  # (C, D)
    places, directions = _class_directions(offsets, min(class_rank, int(present.sum()) - 1))
    factor, scale = in_bytes(loadings)
    return SparseGaussian(
        counts.clone(), mean.float(), deviation.float(), factor, scale, places.half(), directions.half()
    )


def leading_pairs(symmetric: Tensor, rank: int) -> Tensor:  # (D, D) -> (D, K)
    """Return the leading eigenvectors of a matrix, each times the root of its eigenvalue."""
    values, vectors = torch.linalg.eigh(symmetric)
    pairs: Tensor = (vectors * values.clamp_min(0).sqrt()).flip(1)
    return pairs[:, :rank]


def leading_of_factor(factor: Tensor, rank: int) -> Tensor:  # (D, k) -> (D, K)
    """Return the leading pairs of factor factorᵀ."""
    _, vectors = torch.linalg.eigh(factor.T @ factor)
    pairs: Tensor = factor @ vectors.flip(1)
    return pairs[:, :rank]


def in_bytes(loadings: Tensor) -> tuple[Tensor, Tensor]:  # (D, K) -> (D, K), (K,)
    """Return whole numbers between -127 and 127, and what each column of them is to be multiplied by."""
    scale = (loadings.abs().amax(0) / 127).clamp_min(TINY) if loadings.numel() else loadings.new_zeros(0)
    return (loadings / scale).round().to(torch.int8).contiguous(), scale.float()


def merge_gaussians(one: SparseGaussian, other: SparseGaussian) -> SparseGaussian:
    """Return the Gaussian of two sets of examples together: counts, means and variances are exact.

    The eigenpairs are those of both sparse forms, joined and cut to as many as before.
    """
    share = float(other.counts.sum() / (one.counts.sum() + other.counts.sum()))
    counts = one.counts + other.counts
    first, second = one.means(), other.means()
    weights = torch.stack([one.counts, other.counts]) / counts.clamp_min(1)  # (2, C)
    means = weights[0, :, None] * first + weights[1, :, None] * second
    between = (counts * weights[0] * weights[1] / counts.sum()).sqrt()[:, None] * (first - second)  # (C, D)
    a, b = one.deviation.double(), other.deviation.double()
    variance = (1 - share) * a.square() + share * b.square() + between.square().sum(0)
    parts = [
        math.sqrt(1 - share) * a[:, None] * one.loadings(),
        math.sqrt(share) * b[:, None] * other.loadings(),
        between[between.abs().sum(1) > 0].T,
    ]
    deviation = variance.sqrt().clamp_min(TINY)
    rank = max(one.factor.shape[1], other.factor.shape[1])
    factor, scale = in_bytes(leading_of_factor(torch.cat(parts, dim=1) / deviation[:, None], rank))
    mean = (1 - share) * one.mean.double() + share * other.mean.double()
    offsets = torch.where(counts[:, None] > 0, (means - mean) / deviation, 0)
    class_rank = min(max(one.directions.shape[0], other.directions.shape[0]), int((counts > 0).sum()) - 1)
    places, directions = _class_directions(offsets, class_rank)
    return replace(
        one,
        counts=counts,
        mean=mean.float(),
        deviation=deviation.float(),
        factor=factor,
        scale=scale,
        places=places.half(),
        directions=directions.half(),
    )


def _sketched_pairs(sketch: Tensor, random: Tensor, plain: Tensor, rank: int) -> Tensor:  # (D, s) each -> (D, K)
    """Return the leading pairs of Nyström's approximation Y (Ωᵀ Y)⁻¹ Yᵀ of the correlations.

    With C the correlations, Σ = S C S: C (S Ω) = S⁻¹ Σ Ω is `sketch`, and (S Ω)ᵀ C (S Ω) = Ωᵀ Σ Ω.
    """
    core = random.T @ plain
    values, vectors = torch.linalg.eigh((core + core.T) / 2)
    kept = values > 1e-10 * values[-1].clamp_min(TINY)
    return leading_of_factor(sketch @ (vectors[:, kept] / values[kept].sqrt()), rank)


def _class_directions(offsets: Tensor, rank: int) -> tuple[Tensor, Tensor]:  # (C, D) -> (C, r), (r, D)
    """Return the factors of the nearest matrix of a rank; of equal size, so that half precision holds both."""
    if rank < 1:
        return offsets.new_zeros(len(offsets), 0), offsets.new_zeros(0, offsets.shape[1])
    left, values, right = torch.linalg.svd(offsets, full_matrices=False)
    root = values[:rank].sqrt()
    return (left[:, :rank] * root).contiguous(), (root[:, None] * right[:rank]).contiguous()
