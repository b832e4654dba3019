"""Running sums over examples from which a layer's curvature is made."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from infoform.gradients import Gradients, form_gradients, is_outer

CHUNK_BYTES = 64 * 2**20  # of patches and per-example gradients held at a time


class Sums(ABC):
    """Statistics of one layer, summed over the examples seen so far."""

    needs_gradients: ClassVar[bool]

    @abstractmethod
    def add(self, inputs: Tensor, outputs: Tensor, gradients: Gradients | None, *, first: bool) -> None:
        """Add some examples: (H, N, S, A), (H, N, S, G / H); `first` for the first of their Fisher vectors."""


class InputFactor(Sums):
    """Σ_s a aᵀ: one Kronecker factor, one moment of the activation basis, and what the activation prior knows."""

    needs_gradients: ClassVar[bool] = False

    def __init__(self) -> None:
        self.factor: Tensor | None = None  # (A, A)
        self.positions = 0

    def add(self, inputs: Tensor, outputs: Tensor, gradients: Gradients | None, *, first: bool) -> None:
        if first:  # inputs do not depend on the Fisher vector
            groups, examples, positions, _ = inputs.shape
            rows = inputs.flatten(0, 2)
            self.factor = _added(self.factor, rows.T @ rows / groups)
            self.positions += examples * positions


class GradientFactor(Sums):
    """Σ_v,s g gᵀ: the other Kronecker factor, and the other moment of the activation basis."""

    needs_gradients: ClassVar[bool] = False

    def __init__(self) -> None:
        self.factor: Tensor | None = None  # (G, G)

    def add(self, inputs: Tensor, outputs: Tensor, gradients: Gradients | None, *, first: bool) -> None:
        rows = outputs.permute(1, 2, 0, 3).flatten(2).flatten(0, 1)  # (N * S, G)
        self.factor = _added(self.factor, rows.T @ rows)


class Moments(Sums):
    """Σ_v ∇ᵀ∇ and Σ_v ∇∇ᵀ: the moments of the gradient basis."""

    needs_gradients: ClassVar[bool] = True

    def __init__(self) -> None:
        self.input_moment: Tensor | None = None  # (A, A)
        self.gradient_moment: Tensor | None = None  # (G, G)

    def add(self, inputs: Tensor, outputs: Tensor, gradients: Gradients | None, *, first: bool) -> None:
        assert gradients is not None
        self.input_moment = _added(self.input_moment, gradients.input_moment())
        self.gradient_moment = _added(self.gradient_moment, gradients.gradient_moment())


class Squares(Sums):
    """Σ_v ∇²: the exact diagonal."""

    needs_gradients: ClassVar[bool] = True

    def __init__(self) -> None:
        self.squares: Tensor | None = None  # (G, A)

    def add(self, inputs: Tensor, outputs: Tensor, gradients: Gradients | None, *, first: bool) -> None:
        assert gradients is not None
        self.squares = _added(self.squares, gradients.squares())


class ProjectedSquares(Sums):
    """Σ_v (U_Gᵀ ∇ U_A)², and, where the basis is truncated, what it leaves out."""

    needs_gradients: ClassVar[bool] = True

    def __init__(self, input_vectors: Tensor, gradient_vectors: Tensor) -> None:
        self.input_vectors = input_vectors  # (A, a)
        self.gradient_vectors = gradient_vectors  # (G, g)
        self.eigenvalues: Tensor | None = None  # (g, a)
        self.residual: Tensor | None = None  # (G, A)
        self._truncated = any(u.shape[0] > u.shape[1] for u in (input_vectors, gradient_vectors))

    def add(self, inputs: Tensor, outputs: Tensor, gradients: Gradients | None, *, first: bool) -> None:
        assert gradients is not None
        basis = (self.input_vectors, self.gradient_vectors)
        self.eigenvalues = _added(self.eigenvalues, gradients.project(*basis).squares())
        if self._truncated:
            self.residual = _added(self.residual, gradients.residual_squares(*basis))


class Block(Sums):
    """Σ_v vec(∇) vec(∇)ᵀ: the exact information matrix of a small layer."""

    needs_gradients: ClassVar[bool] = True

    def __init__(self) -> None:
        self.block: Tensor | None = None  # (G * A, G * A)

    def add(self, inputs: Tensor, outputs: Tensor, gradients: Gradients | None, *, first: bool) -> None:
        assert gradients is not None
        self.block = _added(self.block, gradients.block())


def chunk_length(inputs: Tensor, num_outputs: int) -> int:  # one example's (H, 1, S, A)
    """Return how many examples to take at a time, so that patches and gradients stay within CHUNK_BYTES."""
    size = inputs.numel() + (0 if is_outer(inputs) else num_outputs * inputs.shape[-1])
    return max(1, CHUNK_BYTES // (size * inputs.element_size()))


def add_examples(sums: Sequence[Sums], inputs: Tensor, outputs: Tensor, *, first: bool) -> None:
    """Give some examples to every sum, forming their gradients once."""
    gradients = form_gradients(inputs, outputs) if any(s.needs_gradients for s in sums) else None
    for one in sums:
        one.add(inputs, outputs, gradients, first=first)


def _added(total: Tensor | None, more: Tensor) -> Tensor:
    return more if total is None else total.add_(more)
