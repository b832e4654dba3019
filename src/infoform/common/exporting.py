"""Operations that are done otherwise while torch.export traces: by products, sums and comparisons, as runtimes want it.

A traced graph has no parts whose number depends on the batch, and runtimes have no search, no factorisation and no
softplus in float64. Everywhere else the faster operations of PyTorch are used.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional


def split_unless_exporting(x: Tensor, size: int) -> Sequence[Tensor]:  # (N, ...) -> (n, ...) each
    """Return parts of at most so many rows, to bound memory; the whole while it is traced.

    Args:
        x: rows.
        size: rows of a part.
    """
    return (x,) if torch.compiler.is_exporting() else x.split(size)


def places_among(points: Tensor, x: Tensor) -> Tensor:  # (R, Q), (R, N) -> (R, N)
    """Return how many of a row's rising points lie below each number of that row."""
    if torch.compiler.is_exporting():
        return (points.unsqueeze(1) < x.unsqueeze(2)).sum(2)
    return torch.searchsorted(points, x)


def entropy_terms(probs: Tensor) -> Tensor:
    """Return −p log p, and 0 where p is 0."""
    if torch.compiler.is_exporting():
        return -probs * torch.where(probs > 0, probs, torch.ones_like(probs)).log()
    terms: Tensor = torch.special.entr(probs)
    return terms


def softplus(x: Tensor) -> Tensor:
    """Return log(1 + exp x)."""
    if torch.compiler.is_exporting():
        return x.clamp_min(0) + torch.log1p(torch.exp(-x.abs()))
    return functional.softplus(x)


def plus_identity(matrices: Tensor) -> Tensor:  # (N, C, C) -> (N, C, C)
    """Return Σ + I, in the memory of Σ; a traced graph is written nowhere, and gets a sum."""
    if torch.compiler.is_exporting():
        return matrices + torch.eye(matrices.shape[1], dtype=matrices.dtype, device=matrices.device)
    matrices.diagonal(dim1=1, dim2=2).add_(1)
    return matrices


def log_det(matrices: Tensor) -> Tensor:  # (N, C, C) -> (N,)
    """Return the log determinants of positive definite matrices; while it is traced, by one elimination a column."""
    if not torch.compiler.is_exporting():
        found: Tensor = torch.linalg.slogdet(matrices).logabsdet
        return found
    return log_det_by_elimination(matrices)


def log_det_by_elimination(matrices: Tensor) -> Tensor:  # (N, C, C) -> (N,)
    """Return the log determinants of positive definite matrices, by sums and products alone."""
    total = matrices[:, 0, 0].log()
    while matrices.shape[1] > 1:
        pivot, column = matrices[:, :1, :1], matrices[:, 1:, :1]
        matrices = matrices[:, 1:, 1:] - column * column.mT / pivot
        total = total + matrices[:, 0, 0].log()
    return total
