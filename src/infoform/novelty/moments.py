"""Running sums of rows x: how many there are, their sums by class, and their second moment.

    n_c,    Σ_{n in c} x,    Σ x xᵀ        of up to EXACT columns
                             Σ x xᵀ Ω, Σ x²   of more, Ω (D, SKETCH) being the same random matrix everywhere

The sums are in float64 and add up over batches, processes and the parts of an interrupted fit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from infoform.common.float64 import in_double
from infoform.novelty.sparse_gaussian import RANK, SparseGaussian, sparse_gaussian

EXACT = 256  # columns whose second moment is kept whole
SKETCH = 2 * RANK + 16  # columns of Ω


@dataclass
class MomentSums:
    """The sums of rows in C classes; of one class where all rows are alike."""

    classes: int = 1
    sums: dict[str, Tensor] = field(default_factory=dict)  # by name; none before the first row

    def add(self, rows: Tensor, labels: Tensor | None = None) -> None:  # (N, D), (N,)
        """Add rows, whose class is 0 where it is not given.

        Raises:
            ValueError: If the rows have another number of columns than those before.
        """
        x = in_double(rows)
        if not self.sums:
            self._begin(x.shape[1], x.device)
        if x.shape[1] != self.sums["total"].shape[1]:
            raise ValueError(
                f"a layer must be given as many numbers at every call, got {self.sums['total'].shape[1]}, then "
                f"{x.shape[1]}; use FitOptions(novelty=False) for this network."
            )
        sums = self.sums
        if self.classes == 1 or labels is None:
            sums["count"][0] += len(x)
            sums["total"][0] += x.sum(0)
        else:
            own = labels.to(x.device)
            sums["count"].index_add_(0, own, torch.ones_like(own, dtype=torch.float64))
            sums["total"].index_add_(0, own, x)
        if "second" in sums:
            sums["second"].addmm_(x.T, x)
        else:
            sums["squares"] += x.square().sum(0)
            sums["sketch"].addmm_(x.T, x @ sketch_matrix(x.shape[1]).to(x.device))

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
        """Return the number of rows."""
        return int(self.sums["count"].sum()) if self.sums else 0

    @property
    def columns(self) -> int:
        """Return the number D of columns; 0 before the first row."""
        return self.sums["total"].shape[1] if self.sums else 0

    def is_finite(self) -> bool:
        """Whether nothing has overflowed."""
        return all(bool(one.isfinite().all()) for one in self.sums.values())

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

    def _begin(self, columns: int, device: torch.device) -> None:
        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.float64, device=device)

        self.sums = {"count": zeros(self.classes), "total": zeros(self.classes, columns)}
        if columns <= EXACT:
            self.sums["second"] = zeros(columns, columns)
        else:
            self.sums |= {"squares": zeros(columns), "sketch": zeros(columns, SKETCH)}


def sketch_matrix(columns: int) -> Tensor:  # (D, SKETCH)
    """Return Ω, which depends on the number of columns alone."""
    generator = torch.Generator().manual_seed(columns)
    return torch.randn(columns, SKETCH, dtype=torch.float64, generator=generator)
