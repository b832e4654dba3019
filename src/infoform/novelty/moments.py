"""Running sums of rows x with weights w: how many there are, their sums by class, and their second moment.

    Σ w,    Σ w x by class,    Σ w x xᵀ             of up to EXACT columns
                               Σ w x xᵀ Ω, Σ w x²   of more, Ω (D, SKETCH) being the same random matrix everywhere

The sums are in float64 and add up over batches, processes and the parts of an interrupted fit. Of wide rows, for which
products cost most, all of the first WHOLE examples count and then one in STRIDE, which stands for its neighbours.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor

from infoform.common.float64 import in_double
from infoform.novelty.hashed_numbers import mixed
from infoform.novelty.sparse_gaussian import RANK, SparseGaussian, sparse_gaussian

EXACT = 256  # columns whose second moment is kept whole
SKETCH = 2 * RANK + 16  # columns of Ω
WIDE = 128  # columns above which a part of many examples will do
WHOLE = 1024  # first examples, which all count
STRIDE = 8  # of the others one in so many counts
EXAMPLES_PER_CLASS = 8  # fewer have one mean together: that of one example would be the example itself


@dataclass
class MomentSums:
    """The sums of rows in C classes; of one class where all rows are alike."""

    classes: int = 1
    sums: dict[str, Tensor] = field(default_factory=dict)  # by name; none before the first row

    def add(self, rows: Tensor, weights: Tensor, labels: Tensor | None = None) -> None:  # (N, D), (N,), (N,)
        """Add rows.

        Args:
            rows: One an example.
            weights: Of the examples, on the CPU; those of weight 0 are left out.
            labels: Their classes; all are of class 0 where not given.

        Raises:
            ValueError: If the rows have another number of columns than those before.
        """
        if not self.sums:
            self._begin(rows.shape[1], in_double(rows[:0]).device)
        sums = self.sums
        if rows.shape[1] != self.columns:
            raise ValueError(
                f"a layer must be given as many numbers at every call, got {self.columns}, then {rows.shape[1]}; use "
                "FitOptions(novelty=False) for this network."
            )
        if not bool(weights.all()):
            places = weights.nonzero().squeeze(1)
            weights, own = weights[places], places.to(rows.device)
            rows, labels = rows[own], None if labels is None else labels[own]
        x = self._as_summed(rows)
        weights = weights.to(sums["count"].device)
        weighted = x * weights.to(x)[:, None]
        if self.classes == 1 or labels is None:
            sums["count"][0] += weights.sum()
            sums["total"][0] += weighted.sum(0)
        else:
            own = labels.to(weights.device)
            sums["count"].index_add_(0, own, weights)
            sums["total"].index_add_(0, own, weighted.double())
        if "second" in sums:
            sums["second"].addmm_(weighted.T, x)
        else:
            sums["squares"] += torch.linalg.vecdot(weighted, x, dim=0)
            sums["sketch"] += weighted.T @ (x @ sketch_matrix(self.columns, x.dtype).to(x.device))

    def state(self) -> dict[str, Tensor]:
        """Return the sums by name."""
        return dict(self.sums)

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from these sums."""
        self.sums = dict(state)
        if state:
            self.classes = len(state["count"])

    @property
    def count(self) -> int:
        """Return the number of examples that the rows stand for."""
        return round(float(self.sums["count"].sum())) if self.sums else 0

    @property
    def columns(self) -> int:
        """Return the number D of columns; 0 before the first row."""
        return self.sums["total"].shape[1] if self.sums else 0

    def is_finite(self) -> bool:
        """Whether nothing has overflowed."""
        return all(bool(one.isfinite().all()) for one in self.sums.values())

    @property
    def has_class_means(self) -> bool:
        """Whether there are enough examples of each class that occurs to tell its mean from the spread around it."""
        return self.classes > 1 and self.count >= EXAMPLES_PER_CLASS * int((self.sums["count"] > 0).sum())

    def joined_classes(self) -> "MomentSums":
        """Return the sums of all rows as those of one class."""
        every = {name: one.sum(0, keepdim=True) for name, one in self.sums.items() if name in ("count", "total")}
        return MomentSums(1, {**self.sums, **every})

    def gaussian(self, *, rank: int, class_rank: int = 0) -> SparseGaussian:
        """Return the means of the classes, and the covariance within classes that all of them share.

        Args:
            rank: Leading eigenpairs that are kept, at most; fewer of few rows.
            class_rank: Directions in which the means of classes may differ.
        """
        sums = {name: one.cpu() for name, one in self.sums.items()}
        counts, total = sums["count"], sums["total"]
        examples = counts.sum()
        means = total / counts.clamp_min(1).unsqueeze(1)  # (C, D)
        if "second" in sums:
            within = (sums["second"] - total.T @ means) / examples
            return sparse_gaussian(
                counts, means, within.diagonal(), covariance=within, rank=rank, class_rank=class_rank
            )
        random = sketch_matrix(total.shape[1])
        variance = (sums["squares"] - (total * means).sum(0)) / examples
        sketch = (sums["sketch"] - total.T @ (means @ random)) / examples
        return sparse_gaussian(counts, means, variance, sketch=sketch, random=random, rank=rank, class_rank=class_rank)

    def _as_summed(self, rows: Tensor) -> Tensor:
        """Return the rows in the type of their products: float64, but for a sketch of narrower numbers."""
        return rows.float() if "sketch" in self.sums and rows.dtype != torch.float64 else in_double(rows)

    def _begin(self, columns: int, device: torch.device) -> None:
        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.float64, device=device)

        self.sums = {"count": zeros(self.classes), "total": zeros(self.classes, columns)}
        if columns <= EXACT:
            self.sums["second"] = zeros(columns, columns)
        else:
            self.sums |= {"squares": zeros(columns), "sketch": zeros(columns, SKETCH)}


def moment_bytes(columns: int, *, classes: int = 1) -> int:
    """Return the bytes of the sums of rows with so many columns, in so many classes."""
    second = columns * (columns if columns <= EXACT else SKETCH + 1)
    return 8 * (classes * (columns + 1) + second)


def example_weights(numbers: Tensor) -> Tensor:  # (N,)
    """Return the weights of examples in the moments of wide rows, which depend on their numbers alone."""
    chosen = (mixed(numbers) >> 12) % STRIDE == 0  # other bits than those that choose the examples left out
    return (chosen.double() * STRIDE).masked_fill_(numbers < WHOLE, 1.0)


@lru_cache(maxsize=64)
def sketch_matrix(columns: int, dtype: torch.dtype = torch.float64) -> Tensor:  # (D, SKETCH)
    """Return Ω, which depends on the number of columns alone; rounded where another dtype is asked for."""
    generator = torch.Generator().manual_seed(columns)
    return torch.randn(columns, SKETCH, dtype=torch.float64, generator=generator).to(dtype)
