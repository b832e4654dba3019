"""Per-example gradients ∇ (N, G, A) of one layer, and the sums of their products that the curvature is made of.

Where the weight is used once an example (S = 1), ∇ = g aᵀ is never formed: Σ ∇ᵀ∇ = Σ |g|² a aᵀ, Σ ∇² = (g²)ᵀ a².
Elsewhere ∇ = Σ_s g_s a_sᵀ is formed for as many examples at a time as memory allows.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor


class Gradients(ABC):
    """The gradients of some examples; every method returns a sum over them."""

    @abstractmethod
    def input_moment(self) -> Tensor:  # (A, A)
        """Return Σ ∇ᵀ∇."""

    @abstractmethod
    def gradient_moment(self) -> Tensor:  # (G, G)
        """Return Σ ∇∇ᵀ."""

    @abstractmethod
    def squares(self) -> Tensor:  # (G, A)
        """Return Σ ∇², element by element."""

    @abstractmethod
    def project(self, input_vectors: Tensor, gradient_vectors: Tensor) -> "Gradients":  # (A, a), (G, g)
        """Return U_Gᵀ ∇ U_A as gradients of shape (g, a)."""

    @abstractmethod
    def residual_squares(self, input_vectors: Tensor, gradient_vectors: Tensor) -> Tensor:  # (G, A)
        """Return Σ (∇ − U_G U_Gᵀ ∇ U_A U_Aᵀ)²."""

    @abstractmethod
    def block(self) -> Tensor:  # (G * A, G * A)
        """Return Σ vec(∇) vec(∇)ᵀ, row-major."""


@dataclass(frozen=True)
class OuterGradients(Gradients):
    """∇ = g aᵀ, kept as its two vectors."""

    inputs: Tensor  # (N, A)
    outputs: Tensor  # (N, G)

    def input_moment(self) -> Tensor:
        return (self.inputs * self.outputs.square().sum(1, keepdim=True)).T @ self.inputs

    def gradient_moment(self) -> Tensor:
        return (self.outputs * self.inputs.square().sum(1, keepdim=True)).T @ self.outputs

    def squares(self) -> Tensor:
        return self.outputs.square().T @ self.inputs.square()

    def project(self, input_vectors: Tensor, gradient_vectors: Tensor) -> "OuterGradients":
        return OuterGradients(self.inputs @ input_vectors, self.outputs @ gradient_vectors)

    def residual_squares(self, input_vectors: Tensor, gradient_vectors: Tensor) -> Tensor:
        a, g = self.inputs, self.outputs
        a_kept = (a @ input_vectors) @ input_vectors.T
        g_kept = (g @ gradient_vectors) @ gradient_vectors.T
        # g aᵀ − ĝ âᵀ = (g − ĝ) aᵀ + ĝ (a − â)ᵀ, squared: no difference of large numbers
        g_rest, a_rest = g - g_kept, a - a_kept
        return (
            g_rest.square().T @ a.square()
            + 2 * (g_rest * g_kept).T @ (a * a_rest)
            + g_kept.square().T @ a_rest.square()
        ).clamp_min(0)

    def block(self) -> Tensor:
        flat = torch.einsum("ng,na->nga", self.outputs, self.inputs).flatten(1)
        return flat.T @ flat


@dataclass(frozen=True)
class DenseGradients(Gradients):
    """∇ as it is."""

    matrices: Tensor  # (N, G, A)

    def input_moment(self) -> Tensor:
        rows = self.matrices.flatten(0, 1)
        return rows.T @ rows

    def gradient_moment(self) -> Tensor:
        return torch.einsum("nga,nha->gh", self.matrices, self.matrices)

    def squares(self) -> Tensor:
        return self.matrices.square().sum(0)

    def project(self, input_vectors: Tensor, gradient_vectors: Tensor) -> "DenseGradients":
        return DenseGradients(gradient_vectors.T @ self.matrices @ input_vectors)

    def residual_squares(self, input_vectors: Tensor, gradient_vectors: Tensor) -> Tensor:
        inner = self.project(input_vectors, gradient_vectors).matrices
        return (self.matrices - gradient_vectors @ inner @ input_vectors.T).square().sum(0)

    def block(self) -> Tensor:
        flat = self.matrices.flatten(1)
        return flat.T @ flat


def form_gradients(inputs: Tensor, outputs: Tensor) -> Gradients:  # (H, N, S, A), (H, N, S, G / H)
    """Return the gradients of a layer from its inputs and the gradients of its outputs."""
    if is_outer(inputs):
        return OuterGradients(inputs[0, :, 0], outputs[0, :, 0])
    matrices = torch.einsum("hnsa,hnsg->nhga", inputs, outputs)
    return DenseGradients(matrices.flatten(1, 2))


def is_outer(inputs: Tensor) -> bool:  # (H, N, S, A)
    """Whether the weight is used once an example, so that ∇ has rank one."""
    return inputs.shape[0] == 1 and inputs.shape[2] == 1
