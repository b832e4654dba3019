"""Kronecker eigenbases: eigenvectors, the diagonal they imply, and which of their pairs are kept."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from infoform.common.float64 import in_double

SUPPORTS = ("top", "grid")
NARROWEST = 64  # columns of squared weights that are computed at a time, at least


@dataclass(frozen=True)
class Eigenbasis:
    """Columns of U_A and U_G, all of them or the leading ones, and the second moments of ∇ along their pairs.

    The paper's EFB is U Λ Uᵀ with U = kron(U_G, U_A), row-major.
    """

    input_vectors: Tensor  # U_A (A, a)
    gradient_vectors: Tensor  # U_G (G, g)
    eigenvalues: Tensor  # Λ (g, a): E Σ_v (U_Gᵀ ∇ U_A)²
    residual: Tensor | None  # (G, A): E Σ_v (∇ − U_G U_Gᵀ ∇ U_A U_Aᵀ)²; None where the basis is complete
    core_pairs: Tensor | None = None  # (2, M): rows and columns of the pairs that are measured together
    core: Tensor | None = None  # (M, M): E Σ_v z zᵀ, with z the entries of U_Gᵀ ∇ U_A at those pairs

    @property
    def total_energy(self) -> float:
        """Return Σ Λ over all pairs, what a truncated basis leaves out included: the trace of the information."""
        left_out = 0.0 if self.residual is None else float(self.residual.double().sum())
        return float(self.eigenvalues.double().sum()) + left_out


def check_moment(matrix: Tensor, *, name: str) -> Tensor:  # (n, m) -> ()
    """Return the largest number of a layer's statistics, in float64, or raise if they overflow."""
    scale = in_double(matrix.abs().max())
    if not bool(scale.isfinite()):
        raise ValueError(f"the statistics of layer '{name}' overflow; scale its inputs or the loss down.")
    return scale


def symmetric_eigh(matrix: Tensor, *, name: str) -> tuple[Tensor, Tensor]:  # (n, n) -> (n,), (n, n)
    """Return eigenvalues, largest first and none below zero, and eigenvectors of a positive semi-definite matrix.

    In float64 and scaled to unit size, because float32 solvers stop ("failed to converge") on the rank-deficient,
    badly scaled factors of real networks.
    """
    scale = check_moment(matrix, name=name)
    if scale == 0:
        return matrix.new_zeros(len(matrix)), torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
    scaled = in_double(matrix) / scale
    scaled = scaled.add(scaled.T).div_(2)  # the products behind it are symmetric only up to rounding
    values, vectors = torch.linalg.eigh(scaled)
    values = values.flip(0).clamp_min(0) * scale
    return values.to(matrix), vectors.flip(1).to(matrix).contiguous()


def leading_pairs(moment: Tensor, *, columns: int | None, name: str) -> tuple[Tensor, Tensor]:  # -> (k,), (n, k)
    """Return the leading eigenvalues and eigenvectors of a second moment, all of them where `columns` is None."""
    values, vectors = symmetric_eigh(moment, name=name)
    return values[:columns], vectors[:, :columns].contiguous()


def promising_pairs(gradient_values: Tensor, input_values: Tensor, *, count: int) -> Tensor:  # (g,), (a,) -> (2, M)
    """Return the pairs whose Λ should be largest, as it would be if both sides were independent: the product."""
    products = gradient_values.double().unsqueeze(1) * input_values.double()
    return torch.stack(select_pairs(products, rank=count, support="top"))


def expanded_diagonal(input_vectors: Tensor, gradient_vectors: Tensor, eigenvalues: Tensor) -> Tensor:  # -> (G, A)
    """Return the diagonal of U Λ Uᵀ without forming U: a sum of products none of which is negative."""
    return gradient_vectors.square() @ eigenvalues @ input_vectors.square().T


def coupled_diagonal(
    input_vectors: Tensor, gradient_vectors: Tensor, rows: Tensor, columns: Tensor, core: Tensor
) -> Tensor:  # (A, a), (G, g), (K,), (K,), (K, K) -> (G, A)
    """Return the diagonal of U_T core U_Tᵀ without forming U_T, in float64: its terms cancel.

    Every row of one side gives a quadratic form in the columns of the other; that one is written out by products of
    its columns, and all forms are evaluated by one matrix product.
    """
    outputs, inputs = len(gradient_vectors), len(input_vectors)
    g, a = gradient_vectors.shape[1], input_vectors.shape[1]
    across, along = outputs * (len(rows) ** 2 * a + inputs * a**2), inputs * (len(rows) ** 2 * g + outputs * g**2)
    if across > along:
        return coupled_diagonal(gradient_vectors, input_vectors, columns, rows, core).T.contiguous()
    first, second = torch.triu_indices(a, a, device=core.device)
    double = torch.where(first == second, 1.0, 2.0).double()
    vectors, picked, core = input_vectors.double(), gradient_vectors.double()[:, rows], core.double()
    chosen = torch.zeros(len(columns), a, dtype=torch.float64, device=core.device)
    chosen[torch.arange(len(columns), device=core.device), columns] = 1
    forms = []
    for part in picked.split(max(1, 2**21 // (len(rows) * a))):
        spread = part.unsqueeze(2) * chosen  # (chunk, K, a)
        form = spread.mT @ (core @ spread)  # (chunk, a, a)
        forms.append(form[:, first, second] * double)
    products = torch.cat(forms)  # (G, a (a + 1) / 2)
    parts = [products @ (part[:, first] * part[:, second]).T for part in vectors.split(max(1, 2**22 // len(first)))]
    return torch.cat(parts, dim=1).clamp_min_(0)


def select_pairs(
    eigenvalues: Tensor, *, rank: int, support: str, first: Tensor | None = None
) -> tuple[Tensor, Tensor]:  # (g, a) -> (K,), (K,)
    """Return rows and columns of the kept eigenvalues.

    "top": exactly the `rank` largest. "grid": those completed to all pairs of their rows and columns, so that the
    kept eigenvectors are a Kronecker product again (algorithm 1 of the paper). The pairs of `first` (2, M) come before
    all others.
    """
    width = eigenvalues.shape[1]
    order = eigenvalues.flatten().argsort(descending=True, stable=True)
    before = torch.zeros(eigenvalues.numel(), dtype=torch.bool, device=order.device)
    if first is not None:
        before[first[0] * width + first[1]] = True
        order = torch.cat([order[before[order]], order[~before[order]]])
    order = order[:rank]
    rows, columns = order // width, order % width
    if support == "top":
        return rows, columns
    rows, columns = rows.unique(), columns.unique()
    rows, columns = rows.repeat_interleave(len(columns)), columns.repeat(len(rows))
    late = (~before[rows * width + columns]).int().argsort(stable=True)
    return rows[late], columns[late]


def gather_pairs(matrix: Tensor, rows: Tensor, columns: Tensor) -> Tensor:  # (..., g, a) -> (..., K)
    return matrix[..., rows, columns]


def scatter_pairs(
    values: Tensor, rows: Tensor, columns: Tensor, shape: tuple[int, int]
) -> Tensor:  # (..., K) -> (..., g, a)
    matrix = values.new_zeros((*values.shape[:-1], *shape))
    matrix[..., rows, columns] = values
    return matrix


@dataclass(frozen=True, eq=False)
class SquaredWeights:
    """Weights r² s² (G, A) in float64, of which some are computed at a time: all of them would pass through memory."""

    PART: ClassVar[int] = 2**17  # numbers at a time

    root: Tensor  # r (G, A)
    scale: Tensor | None = None  # s (G, A); None for 1

    @property
    def shape(self) -> torch.Size:
        return self.root.shape

    @property
    def mT(self) -> "SquaredWeights":
        return SquaredWeights(self.root.mT, None if self.scale is None else self.scale.mT)

    def part(self, rows: slice, columns: slice, *, times: int = 2) -> Tensor:
        """Return some of them, with s that many times in them."""
        found = self.root[rows, columns].to(torch.float64, copy=True).square_()
        if self.scale is not None:
            for _ in range(times):
                found.mul_(self.scale[rows, columns])
        return found

    def times(self, matrix: Tensor, *, times: int = 2) -> Tensor:  # (A, q) -> (G, q)
        """Return their product with a matrix in float64, with s that many times in them."""
        product = matrix.new_empty(len(self.root), matrix.shape[1])
        step = max(1, self.PART // self.root.shape[1])
        for start in range(0, len(self.root), step):
            rows = slice(start, start + step)
            torch.mm(self.part(rows, slice(None), times=times), matrix, out=product[rows])
        return product


def weighted_gram(
    weights: Tensor | SquaredWeights, input_vectors: Tensor, gradient_vectors: Tensor, rows: Tensor, columns: Tensor
) -> Tensor:  # (G, A), (A, a), (G, g), (K,), (K,) -> (K, K)
    """Return U_Tᵀ diag(weights) U_T for the K kept columns of U = kron(U_G, U_A), without forming U_T (G * A, K).

    First the side with fewer columns is contracted in all its pairs, by one matrix product; then either all pairs of
    the other side, or just the K² wanted ones, whichever is cheaper.
    """
    if gradient_vectors.shape[1] > input_vectors.shape[1]:
        return weighted_gram(weights.mT, gradient_vectors, input_vectors, columns, rows)
    pairs_g, index_g = _pair_columns(gradient_vectors, rows)  # (G, p)
    used, count = gradient_vectors.shape[1], len(rows)
    pairs_a = input_vectors.shape[1] * (input_vectors.shape[1] + 1) // 2
    by_matrix_product = pairs_g.shape[1] * pairs_a <= 32 * used * count  # elementwise work costs about 32 times more
    gram = pairs_g.new_zeros(count, count)
    full = pairs_g.new_zeros(pairs_g.shape[1], pairs_a) if by_matrix_product else None
    step = max(1, 2**23 // max(count, pairs_g.shape[1], pairs_a if by_matrix_product else 1))
    if isinstance(weights, SquaredWeights):
        step = min(step, max(NARROWEST, weights.PART // weights.shape[0]))
    for start in range(0, weights.shape[1], step):
        part = slice(start, start + step)
        some = weights[:, part] if isinstance(weights, Tensor) else weights.part(slice(None), part)
        contracted = pairs_g.T @ some  # (p, chunk)
        vectors = input_vectors[part]  # (chunk, a)
        if full is not None:
            pairs, index_a = _pair_columns(vectors, columns)
            full += contracted @ pairs
            continue
        _add_wanted_pairs(gram, contracted, vectors.T.index_select(0, columns), rows, index_g)
    return gram if full is None else full[index_g, index_a]


def _add_wanted_pairs(
    gram: Tensor, contracted: Tensor, picked: Tensor, rows: Tensor, index: Tensor
) -> None:  # (K, K), (p, n), (K, n), (K,), (K, K)
    """Add Σ_n contracted[index[t, u], n] picked[t, n] picked[u, n]; all t with the same row have the same indices."""
    for row in rows.unique():
        own = (rows == row).nonzero().squeeze(1)
        weighted = contracted.index_select(0, index[own[0]]).mul_(picked)
        gram[own] += picked[own] @ weighted.T


def _pair_columns(vectors: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:  # (n, k), (K,) -> (n, k (k+1) / 2), (K, K)
    """Return products of all pairs of columns, and where the pair of each two kept columns stands among them."""
    count = vectors.shape[1]
    first, second = torch.triu_indices(count, count, device=vectors.device)
    position = torch.zeros(count, count, dtype=torch.long, device=vectors.device)
    position[first, second] = position[second, first] = torch.arange(len(first), device=vectors.device)
    return vectors[:, first] * vectors[:, second], position[kept[:, None], kept[None, :]]
