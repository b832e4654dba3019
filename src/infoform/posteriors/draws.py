"""Samples from an INF posterior: normal numbers z become

    y − R⁻¹ C Q diag((1 − (1+k)^(-1/2)) / k) Qᵀ Cᵀ y,    y = F z                     (symbols as in inf.py)

What the low ranks of prior and information share is small and known, so that each of them meets the large matrices
twice; these are read and written as seldom as can be, some rows at a time.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from infoform.posteriors.rowblocks import RowBlocks
from infoform.room import LARGEST, room

LANES = 16  # numbers that a processor's vector unit takes at a time


@dataclass(frozen=True, eq=False)
class DrawForm:
    """What does not depend on the numbers drawn."""

    rows: RowBlocks  # R
    scale: Tensor | None  # S (G, A); None for 1
    scaled_inverse: Tensor  # S D⁻¹ (G, A)
    gradient_vectors: Tensor  # U_G (G, g)
    input_vectors: Tensor  # U_A (A, a), with columns of zeros up to a multiple of `LANES`
    positions: Tensor  # (K,): of the kept pairs in a flattened (g, a)
    shrink: Tensor  # N^(1/2) L Q diag((1 − (1+k)^(-1/2)) / k) (K, K)
    grow: Tensor  # Qᵀ Lᵀ N^(1/2) (K, K)
    shared: tuple[Tensor, Tensor] | None  # (G, p, a) each: what W shares with U_A, and M times that
    factor: Tensor | None  # W V^(1/2) (A, p), padded likewise

    def transform_(self, y: Tensor) -> None:  # (M, G, A)
        """Turn normal numbers into deviations from the trained weights, in place."""
        rows, u, v = self.rows, self.gradient_vectors, self.input_vectors
        inputs_first = v.shape[1] <= u.shape[1]  # the narrow side first
        parts, scratches = _row_parts(y)
        projected, factored = [], []
        for part, scratch in zip(parts, scratches, strict=True):
            own = y[:, part].mul_(rows.root[part])
            scaled = own if self.scale is None else torch.mul(self.scale[part], own, out=scratch)
            projected.append(torch.bmm(scaled, _each(v, y)) if inputs_first else torch.bmm(_each(u[part].T, y), scaled))
            if self.factor is not None:
                factored.append(torch.bmm(own, _each(self.factor, y)))
        inner = u.T @ _joined(projected) if inputs_first else _added(projected) @ v
        taken = None
        if self.shared is not None:
            taken = rows.middle(_joined(factored)[..., : rows.prior.rank], 0)
            inner -= u.T @ (taken.unsqueeze(-2) @ self.shared[0]).squeeze(-2)
        flat = inner.flatten(-2)
        shrunk = flat.index_select(-1, self.positions) @ self.shrink @ self.grow
        kept = u @ torch.zeros_like(flat).index_copy_(-1, self.positions, shrunk).view_as(inner)
        if taken is not None and self.shared is not None:
            taken -= (self.shared[1] @ kept.unsqueeze(-1)).squeeze(-1)
        for part, scratch in zip(parts, scratches, strict=True):
            expanded = torch.bmm(kept[:, part], _each(v.T, y), out=scratch)
            own = y[:, part].addcmul_(self.scaled_inverse[part], expanded, value=-1)
            if taken is not None and rows.factor is not None:
                expanded = torch.bmm(taken[:, part], _each(rows.factor.T, y), out=scratch)
                own.addcmul_(rows.inverse[part], expanded, value=-1)


def padded(vectors: Tensor) -> Tensor:  # (..., a) -> (..., a or some more)
    """Add columns of zeros up to a multiple of `LANES`: products with odd widths take up to three times as long."""
    return functional.pad(vectors, (0, -vectors.shape[-1] % LANES))


def _row_parts(y: Tensor) -> tuple[list[slice], list[Tensor]]:  # (M, G, A)
    """Cut the rows into parts that the room of a thread holds, and give that room in the shape of each part."""
    count, num_rows, num_columns = y.shape
    step = min(num_rows, max(1, LARGEST // (count * num_columns)))
    parts = [slice(start, min(start + step, num_rows)) for start in range(0, num_rows, step)]
    kept = room(y, step * count * num_columns)
    sizes = [count * (part.stop - part.start) * num_columns for part in parts]
    return parts, [kept[:size].view(count, -1, num_columns) for size in sizes]


def _joined(parts: list[Tensor]) -> Tensor:  # (M, rows, p) each -> (M, G, p)
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _added(parts: list[Tensor]) -> Tensor:  # (M, g, A) each
    return parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)


def _each(matrix: Tensor, y: Tensor) -> Tensor:  # (p, q), (M, ...) -> (M, p, q)
    return matrix.expand(len(y), *matrix.shape)
