"""Curvatures of imaginary layers, made naively from random inputs and output gradients."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from infoform.curvature.curvature import Curvature
from infoform.curvature.eigenbasis import Eigenbasis
from infoform.posteriors import STRUCTURES

POSTERIORS: dict[str, Any] = {
    name: structure.posterior for name, structure in STRUCTURES.items()
}  # with from_curvature


def random_gradients(
    *,
    examples: int,
    shape: tuple[int, int],  # (G, A)
    positions: int = 2,
    zero_rows: Sequence[int] = (),
    zero_columns: Sequence[int] = (),
    input_scales: Tensor | None = None,  # (A,)
    seed: int = 0,
) -> tuple[Tensor, Tensor]:  # (N, S, A), (N, S, G)
    """Return inputs, the last column 1 for the bias, and output gradients; correlated, as real ones are."""
    generator = torch.Generator().manual_seed(seed)
    outputs, inputs = shape

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float64)

    a = normal(examples, positions, inputs) @ (torch.eye(inputs, dtype=torch.float64) + 0.5 * normal(inputs, inputs))
    g = normal(examples, positions, outputs) @ (
        torch.eye(outputs, dtype=torch.float64) + 0.5 * normal(outputs, outputs)
    )
    a[..., -1] = 1
    if input_scales is not None:
        a = a * input_scales
    a[..., list(zero_columns)] = 0
    g[..., list(zero_rows)] = 0
    return a, g


def make_curvature(
    a: Tensor,  # (N, S, A)
    g: Tensor,  # (N, S, G)
    *,
    zero_weights: Sequence[tuple[int, int]] = (),
    basis_columns: tuple[int, int] | None = None,
    dtype: torch.dtype = torch.float64,
    name: str = "layer",
) -> Curvature:
    """Return every statistic of the layer; `basis_columns` (g, a) truncates the bases, `zero_weights` have ∇ = 0."""
    gradients = [one_g.T @ one_a for one_a, one_g in zip(a, g, strict=True)]  # (G, A) each
    for gradient in gradients:
        for row, column in zero_weights:
            gradient[row, column] = 0
    count = len(gradients)
    input_factor = sum((one.T @ one for one in a), start=torch.zeros(())) / count
    gradient_factor = sum((one.T @ one for one in g), start=torch.zeros(())) / count
    input_moment = sum((one.T @ one for one in gradients), start=torch.zeros(())) / count
    gradient_moment = sum((one @ one.T for one in gradients), start=torch.zeros(())) / count
    bases = {
        "activation": make_eigenbasis(gradients, input_factor, gradient_factor, basis_columns, dtype),
        "gradient": make_eigenbasis(gradients, input_moment, gradient_moment, basis_columns, dtype),
    }
    flat = torch.stack(gradients).flatten(1)
    return Curvature(
        name=name,
        shape=(g.shape[-1], a.shape[-1]),
        positions=float(a.shape[1]),
        input_factor=input_factor.to(dtype),
        gradient_factor=gradient_factor.to(dtype),
        diagonal=(flat**2).mean(0).reshape(g.shape[-1], a.shape[-1]).to(dtype),
        bases=bases,
        block=(flat.T @ flat / count).to(dtype),
    )


def make_eigenbasis(
    gradients: Sequence[Tensor],
    input_moment: Tensor,
    gradient_moment: Tensor,
    columns: tuple[int, int] | None,
    dtype: torch.dtype,
) -> Eigenbasis:
    """Return the eigenvectors of the moments, cast first, and what the gradients are in them."""
    keep_g, keep_a = columns or (len(gradient_moment), len(input_moment))
    input_vectors = torch.linalg.eigh(input_moment).eigenvectors.flip(1)[:, :keep_a].to(dtype)
    gradient_vectors = torch.linalg.eigh(gradient_moment).eigenvectors.flip(1)[:, :keep_g].to(dtype)
    u_a, u_g = input_vectors.double(), gradient_vectors.double()
    inner = [u_g.T @ one @ u_a for one in gradients]
    rest = [one - u_g @ kept @ u_a.T for one, kept in zip(gradients, inner, strict=True)]
    eigenvalues = torch.stack(inner).square().mean(0)
    residual = torch.stack(rest).square().mean(0)
    order = eigenvalues.flatten().argsort(descending=True)[::2]  # every second pair, so that others are kept beside
    core_pairs = torch.stack([order // keep_a, order % keep_a])
    entries = torch.stack([kept[core_pairs[0], core_pairs[1]] for kept in inner])
    return Eigenbasis(
        input_vectors,
        gradient_vectors,
        eigenvalues.to(dtype),
        None if columns is None else residual.to(dtype),
        core_pairs,
        (entries.T @ entries / len(entries)).to(dtype),
    )
