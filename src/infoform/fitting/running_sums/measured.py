"""What is measured element by element: the diagonal, squares along a basis, and the whole block of a small layer."""

import torch
from torch import Tensor

from infoform.common.matmul import aligned
from infoform.curvature.dimensions import Dimensions
from infoform.curvature.subsampling import STRIDE, WHOLE_RESIDUAL, subsample_weights
from infoform.fitting.per_example_gradients import Gradients, Projection
from infoform.fitting.running_sums.base import Operations, Sums, added


class Squares(Sums):
    """Σ_v ∇²: the exact diagonal."""

    summed = ("squares",)
    of_squares = ("squares",)
    one_by_one = True

    def __init__(self, shape: tuple[int, int]) -> None:
        self._shape = shape
        self.squares: Tensor | None = None  # (G, A)

    def add(self, gradients: Gradients, *, numbers: Tensor, first: bool) -> None:
        if self.squares is None:
            self.squares = aligned(gradients.positions, *self._shape).zero_()
        gradients.add_squares(self.squares)

    def totals(self) -> list[Tensor | None]:
        return [self.squares]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {"squares": self._shape}

    def operations(self, size: Dimensions) -> Operations:
        return Operations(per_vector=2 * size.weights)


class ProjectedSquares(Sums):
    """Σ_v (U_Gᵀ ∇ U_A)², of some pairs all products, and, where the basis is truncated, what it leaves out.

    What a basis leaves out costs more than all the rest, and a part of the examples tells enough of it: see
    `subsample_weights`.
    """

    summed = ("eigenvalues", "residual", "core")
    of_squares = ("eigenvalues",)

    def __init__(self, input_vectors: Tensor, gradient_vectors: Tensor, core_pairs: Tensor | None = None) -> None:
        self.input_vectors = input_vectors  # (A, a)
        self.gradient_vectors = gradient_vectors  # (G, g)
        self.core_pairs = core_pairs  # (2, M)
        self.eigenvalues: Tensor | None = None  # (g, a)
        self.core: Tensor | None = None  # (M, M)
        self.residual: Tensor | None = None  # (G, A)
        self._truncated = any(u.shape[0] > u.shape[1] for u in (input_vectors, gradient_vectors))

    @property
    def pairs_fit(self) -> bool:
        """Whether the pairs of the core are columns of both sides."""
        if self.core_pairs is None:
            return True
        sides = self.gradient_vectors.shape[1], self.input_vectors.shape[1]
        return all(bool(((row >= 0) & (row < side)).all()) for row, side in zip(self.core_pairs, sides, strict=True))

    def add(self, gradients: Gradients, *, numbers: Tensor, first: bool) -> None:
        projection = gradients.project(self.input_vectors, self.gradient_vectors)
        self.eigenvalues = added(self.eigenvalues, projection.squares())
        if self.core_pairs is not None:
            self._add_core(projection.entries(self.core_pairs))
        if self._truncated:
            self._add_residual(projection, subsample_weights(numbers, whole=WHOLE_RESIDUAL).to(gradients.positions))

    def totals(self) -> list[Tensor | None]:
        return [self.eigenvalues]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        (inputs, a), (outputs, g) = self.input_vectors.shape, self.gradient_vectors.shape
        shapes: dict[str, tuple[int, ...]] = {"input_vectors": (inputs, a), "gradient_vectors": (outputs, g)}
        shapes["eigenvalues"] = (g, a)
        if self._truncated:
            shapes["residual"] = (outputs, inputs)
        if self.core_pairs is not None:
            shapes["core"] = (self.core_pairs.shape[1], self.core_pairs.shape[1])
        return shapes

    def planned_bytes(self, dtype: torch.dtype) -> int:
        indices = 0 if self.core_pairs is None else self.core_pairs.nbytes
        return super().planned_bytes(dtype) + indices

    def operations(self, size: Dimensions) -> Operations:
        (inputs, a), (outputs, g) = self.input_vectors.shape, self.gradient_vectors.shape
        if size.outer:
            coordinates = 2 * (inputs * a + outputs * g)
            projecting, leaving_out = coordinates, coordinates + 6 * size.weights
        else:
            projecting = 2 * min(outputs * a * (inputs + g), g * inputs * (outputs + a))
            leaving_out = 2 * outputs * a * (g + inputs)
        core = 0 if self.core_pairs is None else 2 * self.core_pairs.shape[1] ** 2
        residual = leaving_out // STRIDE if self._truncated else 0
        return Operations(per_vector=projecting + 2 * g * a + core + residual)

    def _add_core(self, entries: Tensor) -> None:  # (N, M)
        if self.core is None:
            self.core = entries.new_zeros(entries.shape[1], entries.shape[1])
        self.core.addmm_(entries.T, entries)

    def _add_residual(self, projection: Projection, weights: Tensor) -> None:  # (N,)
        if self.residual is None:
            self.residual = aligned(weights, len(self.gradient_vectors), len(self.input_vectors)).zero_()
        if bool(weights.any()):
            projection.add_residual(self.residual, weights)


class Block(Sums):
    """Σ_v vec(∇) vec(∇)ᵀ: the exact information matrix of a small layer."""

    summed = ("block",)

    def __init__(self, weights: int) -> None:
        self._weights = weights
        self.block: Tensor | None = None  # (G * A, G * A)

    def add(self, gradients: Gradients, *, numbers: Tensor, first: bool) -> None:
        self.block = added(self.block, gradients.block())

    def totals(self) -> list[Tensor | None]:
        return [self.block]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {"block": (self._weights, self._weights)}

    def operations(self, size: Dimensions) -> Operations:
        return Operations(per_vector=2 * self._weights**2)
