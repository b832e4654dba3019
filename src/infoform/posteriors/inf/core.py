"""M, what the kept pairs of INF know of each other: how it is stored, its root, and the diagonal it gives.

Λ_T is its diagonal; what lies below that is stored for the first c pairs, those that were measured together, and is 0
for all others.
"""

import math

import torch
from torch import Tensor

from infoform.curvature.eigenbasis import Eigenbasis, coupled_diagonal, expanded_diagonal, scatter_pairs, symmetric_eigh


def below_diagonal(eigen: Eigenbasis, rows: Tensor, columns: Tensor) -> Tensor:  # (c (c − 1) / 2,)
    """Return what the measured pairs, which come first among the kept ones, know of each other."""
    assert eigen.core_pairs is not None
    assert eigen.core is not None
    width = eigen.eigenvalues.shape[1]
    measured = torch.full((eigen.eigenvalues.numel(),), -1, device=rows.device)
    measured[eigen.core_pairs[0] * width + eigen.core_pairs[1]] = torch.arange(
        eigen.core_pairs.shape[1], device=rows.device
    )
    places = measured[rows * width + columns]
    places = places[places >= 0]
    first, second = torch.tril_indices(len(places), len(places), -1, device=rows.device)
    return eigen.core[places[first], places[second]]


def core_root(eigenvalues: Tensor, core: Tensor | None) -> Tensor:  # (K,), (c (c − 1) / 2,) -> (K, K)
    """Return L, with L Lᵀ = M, in float64."""
    root = eigenvalues.double().sqrt().diag()
    if core is None:
        return root
    count = (1 + math.isqrt(1 + 8 * len(core))) // 2
    first, second = torch.tril_indices(count, count, -1, device=core.device)
    matrix = eigenvalues[:count].double().diag()
    matrix[first, second] = matrix[second, first] = core.double()
    values, vectors = symmetric_eigh(matrix, name="")  # a sum of squares, but for rounding
    root[:count, :count] = vectors * values.sqrt()
    return root


def kept_diagonal(
    input_vectors: Tensor,
    gradient_vectors: Tensor,
    rows: Tensor,
    columns: Tensor,
    eigenvalues: Tensor,
    core: Tensor | None,
) -> Tensor:  # (A, a), (G, g), (K,), (K,), (K,) -> (G, A)
    """Return q_T, the diagonal of U_T M U_Tᵀ."""
    if core is None:
        kept = scatter_pairs(eigenvalues, rows, columns, (gradient_vectors.shape[1], input_vectors.shape[1]))
        return expanded_diagonal(input_vectors, gradient_vectors, kept)
    root = core_root(eigenvalues, core)
    return coupled_diagonal(input_vectors, gradient_vectors, rows, columns, root @ root.T).to(input_vectors.dtype)
