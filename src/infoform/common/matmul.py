"""Sums of products with matrices, one an example, of which either axis may lie innermost in memory.

Patches of a convolution are copied fastest with positions innermost, activations of a linear layer come with features
innermost. A product that asks for the other order copies everything once more, so each is taken as it lies.
"""

import torch
from torch import Tensor
from torch.nn import functional

ALIGNMENT = 16  # numbers: matrix products are slower where rows begin at odd addresses
SYMMETRIC_BLOCKS = 4  # rows of blocks that a large symmetric product is cut into: 10 of 16 blocks are computed,
LARGE_BLOCK = 128  # where a block has at least so many rows
NARROW = 64  # columns up to which a matrix is filled up to a multiple of `ALIGNMENT`
WORTH_COPYING = 128  # columns of both matrices from which a sum over examples is one product of copies
TOGETHER = 2**18  # numbers of all examples' products up to which they are held at once, then added
WORTH_ONEDNN = 2**18  # multiplications from which a product by oneDNN is worth its call
FEW_ROWS = 16  # of both matrices, up to which the longest of rows are multiplied faster by torch
LONG_ROWS = 2**15  # numbers of few rows from which oneDNN is faster all the same
# torch multiplies matrices in float32 by MKL, which leaves half of some processors' vector units idle; oneDNN does not
_ONEDNN = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None


def rows_times(x: Tensor, y: Tensor) -> Tensor:  # (..., p), (q, p) -> (..., q)
    """Return x yᵀ by the fastest product at hand; nothing of it is differentiated."""
    if (
        torch.compiler.is_exporting()
        or _ONEDNN is None
        or x.device.type != "cpu"
        or x.dtype != torch.float32
        or x.numel() * len(y) < WORTH_ONEDNN
        or (x.numel() <= FEW_ROWS * x.shape[-1] and len(y) <= FEW_ROWS)
        or not (x.is_contiguous() and (y.is_contiguous() or y.T.is_contiguous()))  # others are very slow there
    ):
        return x @ y.T
    product: Tensor = _ONEDNN(x.detach(), y.detach(), None, "none", [], "")
    return product


def products_of_few(x: Tensor, y: Tensor) -> Tensor:  # (p, A), (q, A) -> (p, q)
    """Return x yᵀ for few rows, each of them long."""
    if (
        torch.compiler.is_exporting()
        or _ONEDNN is None
        or x.device.type != "cpu"
        or x.dtype != torch.float32
        or x.numel() < LONG_ROWS
        or not (x.is_contiguous() and y.is_contiguous())
    ):
        return x @ y.T
    product: Tensor = _ONEDNN(x.detach(), y.detach(), None, "none", [], "")
    return product


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
    if rows is not None and others is not None:
        return _symmetric(rows.T) if x is y else rows.T @ others
    if len(x) * x.shape[2] * y.shape[2] <= TOGETHER or min(x.shape[2], y.shape[2]) < WORTH_COPYING:
        return summed(x.mT, y)
    # copies: little beside passing over a large product once an example
    return _symmetric(_as_columns(x)) if x is y else _as_columns(x) @ _as_columns(y).T


def times(x: Tensor, matrix: Tensor) -> Tensor:  # (N, S, p), (p, q) -> (N, S, q)
    """Return x_n matrix."""
    rows = _as_rows(x)
    return (matrix.T @ x.mT).mT if rows is None else along(rows, matrix).unflatten(0, x.shape[:2])


def along(x: Tensor, vectors: Tensor) -> Tensor:  # (..., p), (p, q) -> (..., q)
    """Return x times few columns, which take a third of the time where they are a multiple of `ALIGNMENT`."""
    width = vectors.shape[1]
    return x @ vectors if width > NARROW else (x @ padded(vectors))[..., :width]


def padded(vectors: Tensor) -> Tensor:  # (..., a) -> (..., a or some more)
    """Add columns of zeros up to a multiple of `ALIGNMENT`."""
    missing = -vectors.shape[-1] % ALIGNMENT
    return functional.pad(vectors, (0, missing)) if missing else vectors


def selected(x: Tensor, chosen: Tensor) -> Tensor:  # (N, S, p), (n,) -> (n, S, p)
    """Return some of the examples, lying in memory as they did."""
    return x.mT[chosen].mT if _as_rows(x) is None else x[chosen]


def _symmetric(columns: Tensor) -> Tensor:  # (p, n) -> (p, p)
    """Return X Xᵀ; of a large one, all that is above the blocks of its diagonal is copied from below."""
    size = len(columns)
    step = -(-size // SYMMETRIC_BLOCKS)
    if step < LARGE_BLOCK:
        return columns @ columns.T
    product = columns.new_empty(size, size)
    for start in range(0, size, step):
        stop = min(start + step, size)
        torch.mm(columns[start:stop], columns[:stop].T, out=product[start:stop, :stop])
        product[:start, start:stop] = product[start:stop, :start].T
    return product


def _as_columns(x: Tensor) -> Tensor:  # (N, S, p) -> (p, N * S)
    return x.permute(2, 0, 1).flatten(1)


def _as_rows(x: Tensor) -> Tensor | None:  # (N, S, p) -> (N * S, p)
    """Return all positions of all examples as rows; None where that would take a copy."""
    if x.shape[1] == 1:
        return x[:, 0]
    joined = x.stride(2) == 1 and x.stride(0) == x.shape[1] * x.stride(1) and x.stride(1) >= x.shape[2]
    return x.flatten(0, 1) if joined or x.is_contiguous() else None


def aligned(like: Tensor, *shape: int) -> Tensor:  # shape
    """Return empty memory for matrices whose rows begin where the processor likes them to."""
    width = -(-shape[-1] // ALIGNMENT) * ALIGNMENT
    return torch.empty(*shape[:-1], width, dtype=like.dtype, device=like.device)[..., : shape[-1]]
