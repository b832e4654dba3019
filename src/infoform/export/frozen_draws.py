"""Draws from Gaussian outputs by products and sums alone: no random numbers, no eigenvalues, as runtimes want it.

The noise of the draws is a constant of the graph. The symmetric root of the covariance Σ (C × C), which a prediction
takes from its eigenvectors, is here the limit of the coupled Newton-Schulz iteration,

    Y ← Y T,  Z ← T Z,  T = (3 I − Z Y) / 2        from Y = Σ / tr Σ, Z = I;    Y → (Σ / tr Σ)^(1/2)

in which an eigenvalue grows by 2.25 a step until it is near its limit.
"""

from functools import cached_property

import torch
from torch import Tensor

from infoform.likelihoods import DenseCovariance, GaussianOutputs, OutputCovariance

STEPS = 40  # enough for a condition of 1e12


class RootByProducts(DenseCovariance):
    """Covariances whose root needs no eigenvectors."""

    @cached_property
    def _root(self) -> Tensor:  # (N, C, C)
        return square_root(self.matrices.double()).to(self.matrices.dtype)


class FrozenDraws(GaussianOutputs):
    """Gaussian outputs whose draws come from given normal numbers.

    Args:
        mean: means, (N, C).
        covariance: of the outputs.
        normals: standard normal numbers, (M, W), in place of a seed.
        temperature: what the outputs are divided by.
    """

    def __init__(self, mean: Tensor, covariance: OutputCovariance, normals: Tensor, *, temperature: float = 1) -> None:
        super().__init__(mean, covariance, samples=len(normals), temperature=temperature)
        self._normals = normals

    def at_temperature(self, temperature: float) -> "FrozenDraws":
        return FrozenDraws(self._mean, self._form, self._normals, temperature=self.temperature * temperature)

    def draw(self) -> Tensor:  # (M, N, C)
        return self.mean + self._form.transform(self._normals) / self.temperature


def square_root(matrices: Tensor) -> Tensor:  # (N, C, C) -> (N, C, C)
    """Return the symmetric roots of positive semi-definite matrices."""
    tiny = torch.finfo(matrices.dtype).tiny
    trace = matrices.diagonal(dim1=1, dim2=2).sum(1).clamp_min(tiny)[:, None, None]
    eye = torch.eye(matrices.shape[1], dtype=matrices.dtype, device=matrices.device).expand_as(matrices)
    root, inverse = matrices / trace, eye
    for _ in range(STEPS):
        step = torch.baddbmm(eye, inverse, root, beta=1.5, alpha=-0.5)
        root, inverse = torch.bmm(root, step), torch.bmm(step, inverse)
    return root * trace.sqrt()
