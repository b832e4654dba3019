"""Running sums over examples from which a layer's curvature is made."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar

import torch
from torch import Tensor

from infoform.common.matmul import aligned, summed_products, times
from infoform.curvature.eigenbasis import leading_pairs
from infoform.curvature.input_spectrum import InputSpectrum
from infoform.curvature.sketch import OVERSAMPLING, nystrom, random_columns
from infoform.curvature.subsampling import WHOLE_INPUTS, WHOLE_RESIDUAL, subsample_weights
from infoform.fitting.per_example_gradients import Gradients


class Sums(ABC):
    """Statistics of one layer, summed over the examples seen so far."""

    summed: ClassVar[tuple[str, ...]]  # the attributes that add up over examples: tensors, or None so far, and numbers
    forms_gradients: ClassVar[bool] = True  # whether ∇ of a shared weight may be formed
    one_by_one: ClassVar[bool] = False  # whether examples with a large ∇ are best added one at a time

    @abstractmethod
    def add(self, gradients: Gradients, *, numbers: Tensor, first: bool) -> None:
        """Add some examples, which have these numbers (N,); `first` for the first of their Fisher vectors."""

    @abstractmethod
    def totals(self) -> list[Tensor | None]:
        """Return what has been summed, matrices each."""

    def is_finite(self) -> bool:
        """Whether all examples so far were finite: one that is not spoils a whole row or column of every sum."""
        return all(
            math.isfinite(total[0].sum().item() + total[:, 0].sum().item())
            for total in self.totals()
            if total is not None
        )

    def state(self) -> dict[str, Tensor]:
        """Return what has been summed, by attribute; the tensors themselves, not copies."""
        given = {name: getattr(self, name) for name in self.summed}
        return {name: torch.as_tensor(value) for name, value in given.items() if value is not None}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what another object of this kind had summed."""
        for name in self.summed:
            if name in state:
                setattr(self, name, state[name] if state[name].dim() else state[name].item())


class InputFactor(Sums):
    """Σ_s a aᵀ: one Kronecker factor, one moment of the activation basis, and what the activation prior knows."""

    summed = ("factor", "positions")
    forms_gradients = False

    def __init__(self) -> None:
        self.factor: Tensor | None = None  # (A, A)
        self.positions = 0

    def add(self, gradients: Gradients, *, numbers: Tensor, first: bool) -> None:
        if first:  # inputs do not depend on the Fisher vector
            groups, examples, positions, _ = gradients.patches.shape
            patches = gradients.patches.flatten(0, 1)
            products = summed_products(patches, patches)
            self.factor = _added(self.factor, products if groups == 1 else products.div_(groups))
            self.positions += examples * positions

    def totals(self) -> list[Tensor | None]:
        return [self.factor]


class InputEnergy(Sums):
    """Σ_s a², and Σ_s a aᵀ along some directions: what the activation prior knows of a large layer's inputs.

    The directions are those of a random Ω, from which leading eigenvectors are found, or given ones that are kept.
    Inputs vary little from example to example beside gradients, so that a part of the examples tells enough.
    """

    summed = ("diagonal", "along")
    forms_gradients = False

    def __init__(self, size: int, *, rank: int, name: str, seed: int, kept: Tensor | None = None) -> None:
        self._name, self._rank, self._kept = name, rank, kept
        width = min(size, rank + OVERSAMPLING) if rank else 0
        self._columns = random_columns(size, columns=width, name=name, seed=seed) if kept is None else kept
        self.diagonal: Tensor | None = None  # (A,)
        self.along: Tensor | None = None  # Σ_s a aᵀ Ω (A, c), or Σ_s (a w)² (p,)

    def add(self, gradients: Gradients, *, numbers: Tensor, first: bool) -> None:
        weights = subsample_weights(numbers, whole=WHOLE_INPUTS).to(gradients.positions)
        if not first or (self.diagonal is not None and not bool(weights.any())):
            return
        self._columns = self._columns.to(weights)
        chosen = weights.nonzero().squeeze(1)
        counts = weights[chosen].div(len(gradients.positions))
        for patches in gradients.patches_of(chosen):  # (n, S, A)
            energies = torch.linalg.vector_norm(patches, dim=1).square_()
            self.diagonal = _added(self.diagonal, counts @ energies)
            inner = times(patches, self._columns)
            weighted = inner * counts[:, None, None]
            along = summed_products(patches, weighted) if self._kept is None else inner.mul_(weighted).sum((0, 1))
            self.along = _added(self.along, along)

    def totals(self) -> list[Tensor | None]:
        return [None if self.diagonal is None else self.diagonal.unsqueeze(0)]

    def spectrum(self, numbers: range) -> InputSpectrum | None:
        """Return the averages over all examples, which have these numbers."""
        if self.diagonal is None or self.along is None:
            return None
        count = max(1.0, float(subsample_weights(numbers, whole=WHOLE_INPUTS).sum()))
        diagonal, along = self.diagonal / count, self.along / count
        if self._kept is not None:
            return InputSpectrum(diagonal, self._kept, along)
        if self._rank == 0:
            return InputSpectrum(diagonal, along, along.new_zeros(0))
        values, vectors = nystrom(along, self._columns.to(along), columns=self._rank, name=self._name)
        return InputSpectrum(diagonal, vectors, values)


class GradientFactor(Sums):
    """Σ_v,s g gᵀ: the other Kronecker factor, and the other moment of the activation basis."""

    summed = ("factor",)
    forms_gradients = False

    def __init__(self) -> None:
        self.factor: Tensor | None = None  # (G, G)

    def add(self, gradients: Gradients, *, numbers: Tensor, first: bool) -> None:
        positions = gradients.positions.permute(1, 0, 3, 2).flatten(1, 2).mT  # (N, S, G)
        self.factor = _added(self.factor, summed_products(positions, positions))

    def totals(self) -> list[Tensor | None]:
        return [self.factor]


class Moment(Sums):
    """Σ_v ∇ᵀ∇ or Σ_v ∇∇ᵀ whole: all of its eigenvectors."""

    summed = ("moment",)

    def __init__(self, take: Callable[[Gradients], Tensor]) -> None:
        self._take = take
        self.moment: Tensor | None = None  # (n, n)

    def add(self, gradients: Gradients, *, numbers: Tensor, first: bool) -> None:
        self.moment = _added(self.moment, self._take(gradients))

    def totals(self) -> list[Tensor | None]:
        return [self.moment]

    def leading(self, *, columns: int | None, name: str) -> tuple[Tensor, Tensor]:  # (k,), (n, k)
        """Return the leading eigenvalues and eigenvectors."""
        assert self.moment is not None
        return leading_pairs(self.moment, columns=columns, name=name)


class Sketch(Sums):
    """Σ_v ∇ᵀ∇ Ω or Σ_v ∇∇ᵀ Ω: the leading eigenvectors of a moment that is too large to be summed whole."""

    summed = ("sketch",)

    def __init__(
        self, take: Callable[[Gradients, Tensor], Tensor], size: int, *, columns: int, name: str, seed: int
    ) -> None:
        self._take = take
        self._test = random_columns(size, columns=min(size, columns + OVERSAMPLING), name=name, seed=seed)
        self.sketch: Tensor | None = None  # (n, c)

    def add(self, gradients: Gradients, *, numbers: Tensor, first: bool) -> None:
        self._test = self._test.to(gradients.positions)
        self.sketch = _added(self.sketch, self._take(gradients, self._test))

    def totals(self) -> list[Tensor | None]:
        return [self.sketch]

    def leading(self, *, columns: int | None, name: str) -> tuple[Tensor, Tensor]:  # (k,), (n, k)
        """Return the leading eigenvalues and eigenvectors."""
        assert self.sketch is not None
        assert columns is not None
        return nystrom(self.sketch, self._test.to(self.sketch), columns=columns, name=name)


class Squares(Sums):
    """Σ_v ∇²: the exact diagonal."""

    summed = ("squares",)
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


class ProjectedSquares(Sums):
    """Σ_v (U_Gᵀ ∇ U_A)², of some pairs all products, and, where the basis is truncated, what it leaves out.

    Of the last a part of the examples tells enough, and it costs more than all the rest: see `part_weights`.
    """

    summed = ("eigenvalues", "residual", "core")

    def __init__(self, input_vectors: Tensor, gradient_vectors: Tensor, core_pairs: Tensor | None = None) -> None:
        self.input_vectors = input_vectors  # (A, a)
        self.gradient_vectors = gradient_vectors  # (G, g)
        self.core_pairs = core_pairs  # (2, M)
        self.eigenvalues: Tensor | None = None  # (g, a)
        self.core: Tensor | None = None  # (M, M)
        self.residual: Tensor | None = None  # (G, A)
        self._truncated = any(u.shape[0] > u.shape[1] for u in (input_vectors, gradient_vectors))

    def add(self, gradients: Gradients, *, numbers: Tensor, first: bool) -> None:
        weights = None
        if self._truncated:
            weights = subsample_weights(numbers, whole=WHOLE_RESIDUAL).to(gradients.positions)
            weights = weights if bool(weights.any()) else None
            if self.residual is None:
                self.residual = aligned(
                    gradients.positions, len(self.gradient_vectors), len(self.input_vectors)
                ).zero_()
        if self.core_pairs is not None and self.core is None:
            size = self.core_pairs.shape[1]
            self.core = gradients.positions.new_zeros(size, size)
        squares = gradients.measure(
            self.input_vectors,
            self.gradient_vectors,
            residual=self.residual,
            weights=weights,
            pairs=self.core_pairs,
            core=self.core,
        )
        self.eigenvalues = _added(self.eigenvalues, squares)

    def totals(self) -> list[Tensor | None]:
        return [self.eigenvalues]


class Block(Sums):
    """Σ_v vec(∇) vec(∇)ᵀ: the exact information matrix of a small layer."""

    summed = ("block",)

    def __init__(self) -> None:
        self.block: Tensor | None = None  # (G * A, G * A)

    def add(self, gradients: Gradients, *, numbers: Tensor, first: bool) -> None:
        self.block = _added(self.block, gradients.block())

    def totals(self) -> list[Tensor | None]:
        return [self.block]


def _added(total: Tensor | None, more: Tensor) -> Tensor:
    return more if total is None else total.add_(more)
