"""What a prior may know of a layer's inputs: A = E Σ_s a aᵀ by its diagonal and its leading eigenpairs."""

from dataclasses import dataclass

import torch
from torch import Tensor

from infoform.curvature.eigenbasis import symmetric_eigh


@dataclass(frozen=True, eq=False)
class InputSpectrum:
    """A ≈ diag(remainder) + W diag(values) Wᵀ, whose diagonal is that of A.

    Both the diagonal and the values, wᵀ A w, are averages over examples: with W kept, those of more data are added.
    """

    diagonal: Tensor  # (A,): of A
    vectors: Tensor  # W (A, p): orthonormal, but for how it is rounded
    values: Tensor  # (p,)

    @property
    def remainder(self) -> Tensor:  # (A,)
        """Return what the other eigenpairs add to the diagonal: not negative but for rounding."""
        return (self.diagonal - self.vectors.to(self.values).square() @ self.values).clamp_min(0)

    def stored(self) -> "InputSpectrum":
        """Return the same with vectors of half the size where they are in float32: cut off, not rounded to the nearest.

        So W diag(values) Wᵀ takes no more of the diagonal than it did, and diagonal and remainder stay exact.
        """
        if self.vectors.dtype != torch.float32:
            return self
        upper = self.vectors.contiguous().view(torch.int32) & -(2**16)
        return InputSpectrum(self.diagonal, upper.view(torch.float32).bfloat16(), self.values)

    def leading(self, rank: int) -> "InputSpectrum":
        """Keep fewer eigenpairs."""
        return InputSpectrum(self.diagonal, self.vectors[:, :rank].contiguous(), self.values[:rank])


def input_spectrum(input_factor: Tensor, *, rank: int, name: str) -> InputSpectrum:  # (A, A)
    """Keep the diagonal and the leading eigenpairs of a layer's input factor."""
    diagonal = input_factor.diagonal().clone()
    if rank == 0:
        return InputSpectrum(diagonal, input_factor.new_zeros(len(diagonal), 0), input_factor.new_zeros(0))
    values, vectors = symmetric_eigh(input_factor, name=name)
    return InputSpectrum(diagonal, vectors[:, :rank].contiguous(), values[:rank].clone())
