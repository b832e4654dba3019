"""Samples from an INF posterior: normal numbers z become

    y − R⁻¹ C Q diag((1 − (1+k)^(-1/2)) / k) Qᵀ Cᵀ y,    y = F z                     (symbols as in inf.py)

What the low ranks of prior and information share is small and known, so that each of them meets the large matrices
twice; these are read and written as seldom as can be, some rows at a time. Small layers of one shape are drawn
together, since calling an operation takes longer than its few numbers do.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from infoform.common.matmul import rows_times
from infoform.common.scratch import room

PART = 2**19  # numbers that are worked on at a time: they stay in the processor's cache


@dataclass(frozen=True, eq=False)
class DrawForm:
    """What does not depend on the numbers drawn, of one layer (L = 1) or of several that are alike."""

    root: Tensor  # D^(-1/2) (L, G, A)
    scaled_root: Tensor  # S D^(-1/2) (L, G, A)
    gradient_vectors: Tensor  # U_G (L, G, g)
    input_vectors: Tensor  # U_A (L, A, a), with columns of zeros that make products fast
    positions: Tensor  # (L, K): of the kept pairs in a flattened (g, a)
    shrink: Tensor  # N^(1/2) L Q diag((1 − (1+k)^(-1/2)) / k) (L, K, K)
    grow: Tensor  # Qᵀ Lᵀ N^(1/2) (L, K, K)
    width: int  # columns of U_A without those of zeros: a product with few of them on the inside is faster
    low_rank: "LowRank | None" = None

    def transform_(self, z: Tensor) -> None:  # (M or L, G, A)
        """Turn normal numbers into deviations from the trained weights, in place: M of one layer, or one of each."""
        u, v, low = self.gradient_vectors, self.input_vectors, self.low_rank
        inputs_first = v.shape[2] <= u.shape[2]  # the narrow side first
        parts, scratches = _row_parts(z)
        projected, factored = [], []
        for part, scratch in zip(parts, scratches, strict=True):
            if low is not None:
                torch.mul(self.root[:, part], z[:, part], out=scratch)
                factored.append(_product(scratch, low.factor.mT))
            torch.mul(self.scaled_root[:, part], z[:, part], out=scratch)
            projected.append(_product(scratch, v.mT) if inputs_first else _each(u[:, part].mT, z) @ scratch)
        inner = u.mT @ _joined(projected) if inputs_first else _added(projected) @ v
        taken = None
        if low is not None:
            taken = _by_row(_joined(factored)[..., : low.middle.shape[-1]], low.middle)
            inner -= u.mT @ _by_row(taken, low.shared)
        flat = inner.flatten(1)
        positions = self.positions.expand(len(z), -1)
        shrunk = _by_layer(_by_layer(flat.gather(1, positions), self.shrink), self.grow)
        kept = u @ torch.zeros_like(flat).scatter_add_(1, positions, shrunk).view_as(inner)
        narrow, v = kept[..., : self.width], v[..., : self.width]
        if low is not None and taken is not None:
            taken -= (low.solved_shared @ kept.unsqueeze(-1)).squeeze(-1)
        for part, scratch in zip(parts, scratches, strict=True):
            own = z[:, part]
            own.addcmul_(self.scaled_root[:, part], torch.bmm(narrow[:, part], _each(v.mT, z), out=scratch), value=-1)
            if low is not None and taken is not None:
                expanded = torch.bmm(taken[:, part], _each(low.columns.mT, z), out=scratch)
                own.addcmul_(self.root[:, part], expanded, value=-1)
            own.mul_(self.root[:, part])


@dataclass(frozen=True, eq=False)
class LowRank:
    """What a prior of low rank adds to a form."""

    columns: Tensor  # W V^(1/2) (L, A, p)
    factor: Tensor  # the same, padded like U_A
    middle: Tensor  # M for F (L, G, p, p)
    shared: Tensor  # what W shares with U_A (L, G, p, a)
    solved_shared: Tensor  # M for R⁻¹ times that


def stacked(forms: Sequence[DrawForm]) -> DrawForm:
    """Return one form of layers with equal shapes; widths that differ are filled up with zeros, which add nothing."""
    padded = max(form.input_vectors.shape[2] for form in forms)
    moved = [form.positions // form.input_vectors.shape[2] * padded for form in forms]
    columns = [form.positions % form.input_vectors.shape[2] for form in forms]
    low = [form.low_rank for form in forms if form.low_rank is not None]
    together = (_cat([getattr(part, one.name) for part in low]) for one in fields(LowRank))
    names = [one.name for one in fields(DrawForm) if one.name not in ("positions", "width", "low_rank")]
    return DrawForm(
        positions=_cat([rows + column for rows, column in zip(moved, columns, strict=True)]),
        width=max(form.width for form in forms),
        low_rank=LowRank(*together) if low else None,
        **{name: _cat([getattr(form, name) for form in forms]) for name in names},
    )


def _row_parts(z: Tensor) -> tuple[list[slice], list[Tensor]]:  # (M, G, A)
    """Cut the rows into parts that the room of a thread holds, and give that room in the shape of each part."""
    count, num_rows, num_columns = z.shape
    step = min(num_rows, max(1, PART // (count * num_columns)))
    parts = [slice(start, min(start + step, num_rows)) for start in range(0, num_rows, step)]
    kept = room(z, step * count * num_columns)
    sizes = [count * (part.stop - part.start) * num_columns for part in parts]
    return parts, [kept[:size].view(count, -1, num_columns) for size in sizes]


def _product(x: Tensor, y: Tensor) -> Tensor:  # (M, n, p), (1 or M, q, p) -> (M, n, q)
    """Return x yᵀ."""
    return rows_times(x[0], y[0]).unsqueeze(0) if len(x) == 1 else x @ _each(y.mT, x)


def _joined(parts: list[Tensor]) -> Tensor:  # (M, rows, p) each -> (M, G, p)
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _added(parts: list[Tensor]) -> Tensor:  # (M, g, A) each
    return parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)


def _each(matrices: Tensor, z: Tensor) -> Tensor:  # (1 or M, p, q), (M, ...) -> (M, p, q)
    return matrices.expand(len(z), -1, -1)


def _by_row(x: Tensor, matrices: Tensor) -> Tensor:  # (M, G, p), (1 or M, G, p, q) -> (M, G, q)
    return (x.unsqueeze(-2) @ matrices).squeeze(-2)


def _by_layer(x: Tensor, matrices: Tensor) -> Tensor:  # (M, K), (1 or M, K, J) -> (M, J)
    return x @ matrices[0] if len(matrices) == 1 else torch.bmm(x.unsqueeze(1), matrices).squeeze(1)


def _cat(parts: list[Tensor]) -> Tensor:  # (1, ...) each -> (L, ...)
    sizes = [max(lengths) for lengths in zip(*(part.shape[1:] for part in parts), strict=True)]
    whole = parts[0].new_zeros(len(parts), *sizes)
    for one, part in zip(whole, parts, strict=True):
        one[tuple(slice(length) for length in part.shape[1:])] = part[0]
    return whole
