"""What every running sum can do: add examples, tell its bytes and operations, be saved and restored.

A running sum is made from the sizes of a layer, before there is any data. It tells the bytes and the operations that it
will take, and holds no tensor until the first example is added to it.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from infoform.curvature.dimensions import Dimensions
from infoform.fitting.per_example_gradients import Gradients


@dataclass(frozen=True)
class Operations:
    """Flops of one sum for one example: two for each entry of a matrix product, none for what is elementwise."""

    per_example: int = 0  # of inputs, which do not depend on the Fisher vector
    per_vector: int = 0  # for each Fisher vector; where the weight is shared, with ∇ already formed
    unformed: int | None = None  # the same where ∇ is not formed; None where the sum needs it


class Sums(ABC):
    """Statistics of one layer, summed over the examples seen so far."""

    summed: ClassVar[tuple[str, ...]]  # the attributes that add up over examples: tensors, or None so far, and numbers
    of_squares: ClassVar[tuple[str, ...]] = ()  # of those, the ones that cannot be negative
    forms_gradients: ClassVar[bool] = True  # whether ∇ of a shared weight may be formed
    one_by_one: ClassVar[bool] = False  # whether examples with a large ∇ are best added one at a time

    @abstractmethod
    def add(self, gradients: Gradients, *, numbers: Tensor, first: bool) -> None:
        """Add some examples, which have these numbers (N,); `first` for the first of their Fisher vectors."""

    @abstractmethod
    def totals(self) -> list[Tensor | None]:
        """Return what has been summed, matrices each."""

    @abstractmethod
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the tensors that the sum holds once an example was added, by attribute."""

    @abstractmethod
    def operations(self, size: Dimensions) -> Operations:
        """Return the flops of one example, in a layer that uses its weight as often as this."""

    def planned_bytes(self, dtype: torch.dtype) -> int:
        """Return the bytes of these tensors, where the statistics have this dtype."""
        return dtype.itemsize * sum(map(math.prod, self.shapes().values()))

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
            if name in self.of_squares and name in state and bool((state[name] < 0).any()):
                raise ValueError(f"the sums of squares '{name}' must not be negative.")
            if name in state:
                setattr(self, name, state[name] if state[name].dim() else state[name].item())


def added(total: Tensor | None, more: Tensor) -> Tensor:
    """Return the sum of both; the first addend becomes the total, in whose memory all others are added."""
    return more if total is None else total.add_(more)
