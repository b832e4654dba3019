"""Sums of products with matrices, one an example, of which either axis may lie innermost in memory.

Patches of a convolution are copied fastest with positions innermost, activations of a linear layer come with features
innermost. A product that asks for the other order copies everything once more, so each is taken as it lies.
"""

import torch
from torch import Tensor

ALIGNMENT = 16  # numbers: matrix products are slower where rows begin at odd addresses
TOGETHER = 2**18  # numbers of all examples' products up to which they are held at once, then added


def summed(left: Tensor, right: Tensor) -> Tensor:  # (N, p, q), (N, q, r) -> (p, r)
    """Return Σ_n left_n right_n."""
    if len(left) * left.shape[1] * right.shape[2] <= TOGETHER:
        return (left @ right).sum(0)
    total = left[0] @ right[0]
    for one, other in zip(left[1:], right[1:], strict=True):
        total.addmm_(one, other)
    return total


def summed_products(x: Tensor, y: Tensor) -> Tensor:  # (N, S, p), (N, S, q) -> (p, q)
    """Return Σ_n x_nᵀ y_n."""
    rows, others = _as_rows(x), _as_rows(y)
    return summed(x.mT, y) if rows is None or others is None else rows.T @ others


def times(x: Tensor, matrix: Tensor) -> Tensor:  # (N, S, p), (p, q) -> (N, S, q)
    """Return x_n matrix."""
    rows = _as_rows(x)
    return (matrix.T @ x.mT).mT if rows is None else (rows @ matrix).unflatten(0, x.shape[:2])


def selected(x: Tensor, chosen: Tensor) -> Tensor:  # (N, S, p), (n,) -> (n, S, p)
    """Return some of the examples, lying in memory as they did."""
    return x.mT[chosen].mT if _as_rows(x) is None else x[chosen]


def _as_rows(x: Tensor) -> Tensor | None:  # (N, S, p) -> (N * S, p)
    """Return all positions of all examples as rows; None where that would take a copy."""
    if x.shape[1] == 1:
        return x[:, 0]
    return x.flatten(0, 1) if x.is_contiguous() else None


def aligned(like: Tensor, rows: int, columns: int) -> Tensor:  # (rows, columns)
    """Return an empty matrix whose rows begin where the processor likes them to."""
    width = -(-columns // ALIGNMENT) * ALIGNMENT
    return torch.empty(rows, width, dtype=like.dtype, device=like.device)[:, :columns]
