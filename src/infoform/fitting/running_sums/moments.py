"""Second moments whose eigenvectors are the two sides of a basis: held whole, or as a sketch where they are large."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from infoform.common.matmul import summed_products
from infoform.curvature.dimensions import Dimensions
from infoform.curvature.eigenbasis import leading_pairs
from infoform.curvature.sketch import nystrom, random_columns, sketch_width
from infoform.fitting.per_example_gradients import Gradients
from infoform.fitting.running_sums.base import Operations, Sums, added


class SecondMoment(Sums, ABC):
    """A sum that one side of a basis is found from."""

    @abstractmethod
    def leading(self, *, columns: int, name: str) -> tuple[Tensor, Tensor]:  # (k,), (n, k)
        """Return the leading eigenvalues and eigenvectors."""

    @abstractmethod
    def eigen_flops(self) -> int:
        """Return about the flops of `leading`."""

    @abstractmethod
    def eigen_bytes(self) -> int:
        """Return about the working memory of `leading`: four matrices in float64."""


class WholeMoment(SecondMoment, ABC):
    """A second moment that is held whole: all of its eigenvectors."""

    summed: ClassVar[tuple[str, ...]] = ("moment",)

    def __init__(self, size: int) -> None:
        self._size = size
        self.moment: Tensor | None = None  # (n, n)

    def totals(self) -> list[Tensor | None]:
        return [self.moment]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {"moment": (self._size, self._size)}

    def leading(self, *, columns: int, name: str) -> tuple[Tensor, Tensor]:
        assert self.moment is not None
        return leading_pairs(self.moment, columns=columns, name=name)

    def eigen_flops(self) -> int:
        return 9 * self._size**3

    def eigen_bytes(self) -> int:
        return 4 * torch.float64.itemsize * self._size**2


class InputFactor(WholeMoment):
    """Σ_s a aᵀ: one Kronecker factor, one moment of the activation basis, and what the activation prior knows."""

    summed = ("moment", "positions")
    forms_gradients = False

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.positions = 0

    def add(self, gradients: Gradients, *, numbers: Tensor, first: bool) -> None:
        if first:  # inputs do not depend on the Fisher vector
            groups, examples, positions, _ = gradients.patches.shape
            patches = gradients.patches.flatten(0, 1)
            products = summed_products(patches, patches)
            self.moment = added(self.moment, products if groups == 1 else products.div_(groups))
            self.positions += examples * positions

    def operations(self, size: Dimensions) -> Operations:
        return Operations(per_example=2 * size.groups * size.uses * self._size**2, unformed=0)


class GradientFactor(WholeMoment):
    """Σ_v,s g gᵀ: the other Kronecker factor, and the other moment of the activation basis."""

    forms_gradients = False

    def add(self, gradients: Gradients, *, numbers: Tensor, first: bool) -> None:
        positions = gradients.positions.permute(1, 0, 3, 2).flatten(1, 2).mT  # (N, S, G)
        self.moment = added(self.moment, summed_products(positions, positions))

    def operations(self, size: Dimensions) -> Operations:
        flops = 2 * size.uses * self._size**2
        return Operations(per_vector=flops, unformed=flops)


class Moment(WholeMoment):
    """Σ_v ∇ᵀ∇ or Σ_v ∇∇ᵀ whole: one moment of the gradient basis."""

    def __init__(self, take: Callable[[Gradients], Tensor], size: int) -> None:
        super().__init__(size)
        self._take = take

    def add(self, gradients: Gradients, *, numbers: Tensor, first: bool) -> None:
        self.moment = added(self.moment, self._take(gradients))

    def operations(self, size: Dimensions) -> Operations:
        return Operations(per_vector=2 * self._size * (self._size if size.outer else size.weights))


class Sketch(SecondMoment):
    """Σ_v ∇ᵀ∇ Ω or Σ_v ∇∇ᵀ Ω: the leading eigenvectors of a moment that is too large to be summed whole."""

    summed = ("sketch",)

    def __init__(
        self, take: Callable[[Gradients, Tensor], Tensor], size: int, *, columns: int, name: str, seed: int
    ) -> None:
        self._take, self._size, self._name, self._seed = take, size, name, seed
        self._width = sketch_width(size, columns)
        self.test: Tensor | None = None  # Ω (n, c)
        self.sketch: Tensor | None = None  # (n, c)

    def add(self, gradients: Gradients, *, numbers: Tensor, first: bool) -> None:
        self.test = self._test_columns(gradients.positions)
        self.sketch = added(self.sketch, self._take(gradients, self.test))

    def totals(self) -> list[Tensor | None]:
        return [self.sketch]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return dict.fromkeys(("test", "sketch"), (self._size, self._width))

    def operations(self, size: Dimensions) -> Operations:
        if size.outer:
            return Operations(per_vector=4 * self._size * self._width)
        through_factors = 4 * size.uses * (size.outputs + size.inputs) * self._width
        unformed = through_factors if size.groups == 1 else None
        return Operations(per_vector=4 * size.weights * self._width, unformed=unformed)

    def leading(self, *, columns: int, name: str) -> tuple[Tensor, Tensor]:
        assert self.sketch is not None
        return nystrom(self.sketch, self._test_columns(self.sketch), columns=columns, name=name)

    def eigen_flops(self) -> int:
        return 8 * self._size * self._width**2

    def eigen_bytes(self) -> int:
        return 4 * torch.float64.itemsize * 2 * self._size * self._width

    def _test_columns(self, like: Tensor) -> Tensor:
        if self.test is None:
            self.test = random_columns(self._size, columns=self._width, name=self._name, seed=self._seed)
        return self.test.to(like)
