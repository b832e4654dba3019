"""What can be asked of the gradients of some examples, in whatever form they are held."""

from abc import ABC, abstractmethod
from functools import cached_property

from torch import Tensor


class Gradients(ABC):
    """The gradients of some examples; every method returns a sum over them."""

    patches: Tensor | cached_property[Tensor]  # (H, N, S, A): the layer's inputs by group, example and position
    positions: Tensor | cached_property[Tensor]  # (H, N, S, G / H): the gradients of its outputs

    @abstractmethod
    def input_moment(self) -> Tensor:  # (A, A)
        """Return Σ ∇ᵀ∇."""

    @abstractmethod
    def gradient_moment(self) -> Tensor:  # (G, G)
        """Return Σ ∇∇ᵀ."""

    @abstractmethod
    def input_sketch(self, vectors: Tensor) -> Tensor:  # (A, c) -> (A, c)
        """Return Σ ∇ᵀ∇ Ω."""

    @abstractmethod
    def gradient_sketch(self, vectors: Tensor) -> Tensor:  # (G, c) -> (G, c)
        """Return Σ ∇∇ᵀ Ω."""

    @abstractmethod
    def add_squares(self, total: Tensor) -> None:  # (G, A)
        """Add Σ ∇², element by element, in place."""

    @abstractmethod
    def project(self, input_vectors: Tensor, gradient_vectors: Tensor) -> "Projection":  # (A, a), (G, g)
        """Return ∇ along the columns of a basis."""

    @abstractmethod
    def block(self) -> Tensor:  # (G * A, G * A)
        """Return Σ vec(∇) vec(∇)ᵀ, row-major."""

    @abstractmethod
    def rows(self, chosen: Tensor) -> "Gradients":  # (n,)
        """Return the gradients of some of the examples."""

    @abstractmethod
    def patches_of(self, chosen: Tensor) -> Tensor:  # (n,) -> (H, n, S, A)
        """Return the patches of some of the examples, which are not needed of the others; a copy."""


class Projection(ABC):
    """The coordinates U_Gᵀ ∇ U_A of some examples in a basis."""

    @abstractmethod
    def squares(self) -> Tensor:  # (g, a)
        """Return Σ (U_Gᵀ ∇ U_A)²."""

    @abstractmethod
    def entries(self, pairs: Tensor) -> Tensor:  # (2, M) -> (N, M)
        """Return U_Gᵀ ∇ U_A at some pairs of columns, example by example."""

    @abstractmethod
    def add_residual(self, total: Tensor, weights: Tensor) -> None:  # (G, A), (N,)
        """Add Σ w (∇ − U_G U_Gᵀ ∇ U_A U_Aᵀ)², with a weight w for each example, in place."""
