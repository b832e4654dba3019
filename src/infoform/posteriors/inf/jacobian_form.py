"""Output covariances under an INF posterior for any Jacobians J_c (G, A), one example after the other.

With y = D⁻¹ J and, of the prior's low rank, b_g = Vᵀ^(1/2) Wᵀ y_g (p numbers a row),

    J_c P⁻¹ J_dᵀ = Σ J_c y_d − Σ_g t_cgᵀ t_dg − z_cᵀ z_d
    t_g = L_gᵀ b_g,    z = (1 + k)^(-1/2) Qᵀ N^(1/2) Lᵀ (U_Tᵀ S y − Σ_g H_gᵀ b_g)

with L_g and H_g of row_blocks.py. A kept pair is a column of U_G and one of U_A. Large pairs share few columns of
either: those of U_A that many pairs have are multiplied with y, and for the pairs that are left those of U_G are. On a
ResNet-20 these are 5 to 17 columns in place of up to 64 of U_A.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from infoform.common.matmul import ALIGNMENT, padded, products_of_few, rows_times
from infoform.curvature.eigenbasis import gather_pairs
from infoform.posteriors.jacobian_sums import JacobianSums

TOGETHER = 3 * 2**17  # bytes of y that are multiplied at a time, where an example has less
ROW_COST = 3  # columns of U_A that take as long as a column of U_G


@dataclass(frozen=True, eq=False)
class PairCover:
    """The kept pairs in two parts: those of some columns of U_A, and those of some columns of U_G."""

    columns: Tensor  # (c,): of U_A, whose pairs come first
    rows: Tensor  # (r,): of U_G, whose pairs come last
    order: Tensor  # (K,): the pairs in this order
    by_column: tuple[Tensor, Tensor]  # of the first pairs: which of `columns`, and which column of U_G
    by_row: tuple[Tensor, Tensor]  # of the last pairs: which of `rows`, and which column of U_A

    @classmethod
    def of(cls, rows: Tensor, columns: Tensor) -> "PairCover":  # (K,), (K,)
        """Find the cover that takes the least time: columns of U_A with most pairs, then what is left of U_G."""
        counts = columns.bincount()
        ranked = counts.argsort(descending=True, stable=True)
        place = torch.empty_like(ranked)
        place[ranked] = torch.arange(len(ranked), device=ranked.device)
        last = torch.zeros(int(rows.max()) + 1, dtype=torch.long, device=rows.device)
        last.scatter_reduce_(0, rows, place[columns] + 1, "amax")  # taken columns from which a row is not needed
        takes = [
            -(-taken // ALIGNMENT) * ALIGNMENT + ROW_COST * int((last > taken).sum())
            for taken in range(len(ranked) + 1)
        ]
        taken = takes.index(min(takes))
        first = place[columns] < taken
        order = torch.cat([first.nonzero().flatten(), (~first).nonzero().flatten()])
        kept_rows, row_places = rows[~first].unique(return_inverse=True)
        return cls(
            ranked[:taken],
            kept_rows,
            order,
            (place[columns[first]], rows[first]),
            (row_places, columns[~first]),
        )


@dataclass(frozen=True, eq=False)
class JacobianForm:
    """What does not depend on the examples."""

    inverse: Tensor  # D⁻¹ (G, A)
    scale: Tensor | None  # S (G, A); None for 1
    split: Callable[[Tensor], tuple[Tensor, Tensor]] | None  # of Jacobians, where the prior is stiff: see row_blocks.py
    factor: Tensor | None  # (p or some more, A): the prior's W V^(1/2)
    root: Tensor | None  # L_g (G, p, p)
    shared: Tensor | None  # H (G, p, K), pairs in the order of the cover
    cover: PairCover
    vectors: Tensor  # (c or some more, A): the columns of U_A that the cover takes
    row_vectors: Tensor  # (r, G): the columns of U_G that the cover takes
    input_vectors: Tensor  # U_A (A, a)
    gradient_vectors: Tensor  # U_G (G, g)
    whitener: Tensor  # (K, K): N^(1/2) L Q (1 + k)^(-1/2), rows in the order of the cover

    @classmethod
    def of(
        cls,
        *,
        inverse: Tensor,
        scale: Tensor | None,
        split: Callable[[Tensor], tuple[Tensor, Tensor]] | None,
        factor: Tensor | None,
        root: Tensor | None,
        taken: Tensor | None,
        pairs: tuple[Tensor, Tensor],
        cover: PairCover,
        input_vectors: Tensor,
        gradient_vectors: Tensor,
        whitener: Tensor,
    ) -> "JacobianForm":
        """Return the form from what a posterior has; `taken` (G, p, a) is what W takes from products with U_A."""
        rows, columns = (part[cover.order] for part in pairs)
        shared = None if taken is None else taken[:, :, columns] * gradient_vectors[:, rows].unsqueeze(1)
        return cls(
            inverse=inverse,
            scale=scale,
            split=split,
            factor=None if factor is None else padded(factor).T.contiguous(),
            root=root,
            shared=shared,
            cover=cover,
            vectors=padded(input_vectors[:, cover.columns]).T.contiguous(),
            row_vectors=gradient_vectors[:, cover.rows].T.contiguous(),
            input_vectors=input_vectors,
            gradient_vectors=gradient_vectors,
            whitener=whitener[cover.order],
        )

    @property
    def rank(self) -> int:
        """Return p, the rank of the prior's low rank."""
        return 0 if self.root is None else self.root.shape[1]


class InfJacobianSums(JacobianSums):
    """Sums of examples, of which as many are multiplied at a time as the cache holds."""

    def __init__(self, form: JacobianForm) -> None:
        self._form = form
        self._products: list[Tensor] = []  # J yᵀ (C, C) of each example
        self._along: list[Tensor] = []  # (C, G, p) of each example, where Jacobians are split
        self._by_factor: list[Tensor] = []  # b (n, C, G, p or some more)
        self._by_column: list[Tensor] = []  # S y U_A (n, C, G, c or some more)
        self._by_row: list[Tensor] = []  # U_Gᵀ S y (C, r, A) of each example
        self._memory: Tensor | None = None  # y (n, C, G, A)
        self._waiting = 0  # examples of it

    def add(self, jacobians: Tensor) -> None:
        form = self._form
        if form.split is not None:
            jacobians, along = form.split(jacobians)
            self._along.append(along)
        if self._memory is None:
            self._memory = jacobians.new_empty(max(1, TOGETHER // jacobians.nbytes), *jacobians.shape)
        y = self._memory[self._waiting]
        torch.mul(jacobians, form.inverse, out=y)
        self._products.append(products_of_few(jacobians.flatten(1), y.flatten(1)))
        self._waiting += 1
        if self._waiting == len(self._memory):
            self._multiply()

    def _multiply(self) -> None:
        """Multiply what waits by the prior's factor and by columns of the kept pairs."""
        if not self._waiting or self._memory is None:
            return
        form, y = self._form, self._memory[: self._waiting]
        rows, shape = y.flatten(0, 2), (*y.shape[:3], -1)
        if form.factor is not None:
            self._by_factor.append(rows_times(rows, form.factor).view(shape))
        if form.scale is not None:
            y *= form.scale
        if len(form.cover.columns):
            self._by_column.append(rows_times(rows, form.vectors).view(shape))
        if len(form.cover.rows):
            vectors = form.row_vectors.expand(y.shape[1], -1, -1)
            self._by_row += [torch.bmm(vectors, one) for one in y]
        self._waiting = 0

    def covariance(self) -> Tensor:
        self._multiply()
        form, covariance = self._form, torch.stack(self._products)
        examples = covariance.shape[:2]
        pairs = self._along_pairs().unflatten(0, examples)  # (N, C, K)
        if form.root is not None and form.shared is not None:
            by_factor = torch.cat(self._by_factor)[..., : form.rank]
            if self._along:
                along = torch.stack(self._along)
                by_factor = by_factor - along
                covariance += along.flatten(2) @ along.flatten(2).mT
            taken = (by_factor.flatten(0, 1).transpose(0, 1) @ form.root).transpose(0, 1)  # (N C, G, p)
            taken = taken.reshape(*examples, -1)
            covariance -= taken @ taken.mT
            pairs -= rows_times(by_factor.flatten(2), form.shared.flatten(0, 1).T)
        kept = pairs @ form.whitener
        return torch.baddbmm(covariance, kept, kept.mT, alpha=-1)

    def _along_pairs(self) -> Tensor:  # (N * C, K)
        """Return U_Tᵀ S y, pairs in the order of the cover."""
        form, cover, found = self._form, self._form.cover, []
        if self._by_column:
            by_column = torch.cat(self._by_column).flatten(0, 1)[..., : len(cover.columns)].mT  # (N C, c, G)
            inner = rows_times(by_column.reshape(-1, by_column.shape[2]), form.gradient_vectors.T)
            found.append(gather_pairs(inner.unflatten(0, by_column.shape[:2]), *cover.by_column))
        if self._by_row:
            by_row = torch.cat(self._by_row)  # (N C, r, A)
            inner = rows_times(by_row.flatten(0, 1), form.input_vectors.T)
            found.append(gather_pairs(inner.unflatten(0, by_row.shape[:2]), *cover.by_row))
        return torch.cat(found, dim=1)
