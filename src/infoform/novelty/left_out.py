"""Examples that are left out of the moments, so that they can stand for fresh known inputs when the fit ends.

An example is left out if the hash of its number is a multiple of a stride. When more are left out than may be, the
stride doubles, and those that are left out no longer go into the moments after all. So the choice depends on the
numbers of the examples alone, neither on the batch size nor on the number of processes, and is spread over all data.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from infoform.novelty.hashed_numbers import mixed

FIRST_STRIDE = 4  # one in so many is left out of few examples
MOST = 1000  # examples that are left out
LEAST_LIMIT = 200  # of them, whatever bytes they take
MOST_PARTS = 64  # tensors of single examples would take more room than their numbers
MOST_BYTES = 64 * 2**20  # of their pooled inputs


@dataclass(frozen=True)
class ExampleRows:
    """What is known of some examples: their numbers, and named rows."""

    numbers: Tensor  # (n,)
    rows: Mapping[str, Tensor]  # (n, ...)

    def select(self, which: Tensor) -> "ExampleRows":  # (n,) of truth values
        """Return some of the examples."""
        places = which.nonzero().squeeze(1)
        rows = {name: one.index_select(0, places.to(one.device)) for name, one in self.rows.items()}
        return ExampleRows(self.numbers[which], rows)

    @staticmethod
    def joined(parts: "list[ExampleRows]") -> "ExampleRows":
        """Return the examples of several parts, in the order of their numbers; rows that one part lacks are dropped."""
        names = [name for name in parts[0].rows if all(name in one.rows for one in parts)] if parts else []
        numbers = torch.cat([torch.zeros(0, dtype=torch.int64), *(one.numbers for one in parts)])
        order = numbers.argsort()
        rows = {name: torch.cat([one.rows[name].cpu() for one in parts])[order] for name in names}
        return ExampleRows(numbers[order], rows)


def most_left_out(each: int) -> int:
    """Return how many examples may be left out, each of which takes so many bytes."""
    return max(LEAST_LIMIT, min(MOST, MOST_BYTES // max(1, each)))


@dataclass
class LeftOut:
    """The examples of this process that are left out so far."""

    stride: int = FIRST_STRIDE
    parts: list[ExampleRows] = field(default_factory=list)

    def cut(self, examples: ExampleRows) -> tuple[Tensor, list[ExampleRows]]:  # -> (n,)
        """Leave some of these examples out.

        Returns:
            Which examples these are, and those that were left out, now or before, and are no more.
        """
        chosen = self._chosen(examples.numbers)
        if not bool(chosen.any()):
            return chosen, []
        own = examples.select(chosen)  # copies: a loader may write over its memory
        self.parts.append(ExampleRows(own.numbers, {name: one.cpu() for name, one in own.rows.items()}))
        if len(self.parts) > MOST_PARTS and all(one.rows.keys() == own.rows.keys() for one in self.parts):
            self.parts = [ExampleRows.joined(self.parts)]
        return chosen, self.thin_out(limit=self.limit)

    def thin_out(self, *, limit: int) -> list[ExampleRows]:
        """Double the stride until no more are left out than the limit, and return the others."""
        returned: list[ExampleRows] = []
        while self.count > limit:
            returned += self.widen(2 * self.stride)
        return returned

    def widen(self, stride: int) -> list[ExampleRows]:
        """Take a wider stride, and return the examples that are left out no more."""
        self.stride = stride
        chosen = [self._chosen(one.numbers) for one in self.parts]
        returned = [one.select(~which) for one, which in zip(self.parts, chosen, strict=True) if not bool(which.all())]
        kept = [one.select(which) for one, which in zip(self.parts, chosen, strict=True)]
        self.parts = [one for one in kept if len(one.numbers)]
        return returned

    @property
    def count(self) -> int:
        """Return how many examples are left out."""
        return sum(one.numbers.numel() for one in self.parts)

    @property
    def limit(self) -> int:
        """Return how many may be left out, by the bytes that one of them takes."""
        return most_left_out(sum(one[0].nbytes for one in self.parts[0].rows.values()) if self.parts else 0)

    def examples(self) -> ExampleRows:
        """Return all that are left out, in the order of their numbers."""
        return ExampleRows.joined(self.parts)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return what another object needs to go on, as tensors and plain values."""
        own = self.examples()
        tensors = {f"row/{name}": one for name, one in own.rows.items()}
        return {"numbers": own.numbers, **tensors} if len(own.numbers) else {}, {"stride": self.stride}

    def restore(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Go on from the state of another object."""
        self.stride = int(values["stride"])
        if tensors:
            rows = {name.removeprefix("row/"): t.cpu() for name, t in tensors.items() if name != "numbers"}
            self.parts = [ExampleRows(tensors["numbers"].cpu(), rows)]

    def _chosen(self, numbers: Tensor) -> Tensor:  # (n,)
        return mixed(numbers) % self.stride == 0
