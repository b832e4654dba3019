"""Output covariances under an INF posterior for Jacobians g_c aᵀ, which are not formed.

With R_g = diag(D_g) + W V Wᵀ for the rows (rowblocks.py) and the kept pairs C = N^(1/2) S U_T L,

    J_c P⁻¹ J_dᵀ = Σ_g g_cg g_dg aᵀ R_g⁻¹ a − z_cᵀ z_d,    z_c = (1 + k)^(-1/2) Qᵀ Cᵀ R⁻¹ vec(g_c aᵀ)

Both terms need D⁻¹ times a and a column (of W, of U_A): one matrix product for all examples, rows and columns. What
W takes away is small, (p × p) and (p × a) a row, and is applied to both at once. Some examples at a time, in the same
memory: fresh pages cost more than numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from infoform.common.matmul import rows_times

SCRATCH = 2**23  # numbers held at a time


@dataclass(frozen=True, eq=False)
class OuterForm:
    """What does not depend on the examples."""

    inverse: Tensor  # D⁻¹ (G, A)
    scaled_inverse: Tensor  # S D⁻¹ (G, A)
    columns: Tensor  # U_A (A, a)
    factor: Tensor | None  # W V^(1/2) (A, p)
    split: Callable[[Tensor], tuple[Tensor, Tensor]] | None  # of inputs, so that nothing cancels: see row_blocks.py
    taken: Tensor | None  # (G, p, p + a): the root of what W takes from rows' variances; what it takes from pairs
    rows: Tensor  # (K, G): of each kept pair the column of U_G, sorted by its column of U_A
    bounds: list[int]  # (a + 1): where the pairs of each column begin
    whitener: Tensor  # (K, K): N^(1/2) L Q (1 + k)^(-1/2), rows sorted likewise

    def covariance(self, inputs: Tensor, outputs: Tensor) -> Tensor:  # (N, A), (N, C, G) -> (N, C, C)
        """Return J_c P⁻¹ J_dᵀ for every example."""
        count = outputs.shape[1]
        each = self._numbers(count)
        parts = max(1, -(-len(inputs) * each // SCRATCH))
        step = max(1, -(-len(inputs) // parts))
        kept = inputs.new_empty(each * step)
        found = inputs.new_empty(len(inputs), count, count)
        for part, a, g in zip(found.split(step), inputs.split(step), outputs.split(step), strict=True):
            self._write(a, g, _Memory(kept), part)
        return found

    def _numbers(self, count: int) -> int:
        """Return how many numbers an example needs while it is worked on."""
        (num_rows, num_columns), kept = self.inverse.shape, self.columns.shape[1]
        rank = 0 if self.factor is None else self.factor.shape[1]
        spread = max(rank, kept) * num_columns
        return spread + (rank + kept + len(self.rows) + count) * num_rows

    def _write(self, a: Tensor, g: Tensor, memory: "_Memory", found: Tensor) -> None:  # (n, A), (n, C, G), (n, C, C)
        n, num_rows, num_columns = len(a), *self.inverse.shape
        kept = self.columns.shape[1]
        rank = 0 if self.factor is None else self.factor.shape[1]
        spread = memory.take(n, max(rank, kept) * num_columns).flatten()
        along = None
        if self.split is not None:
            a, along = self.split(a)  # (n, A), (n, p)
        variance = rows_times(a.square(), self.inverse)  # (n, G)
        shared = None
        if self.factor is not None and self.taken is not None and along is not None:
            variance += along.square().sum(1, keepdim=True)
            by_factor = torch.mul(a.unsqueeze(1), self.factor.T, out=spread[: n * rank * num_columns].view(n, rank, -1))
            # by rows, as the small products want it
            inner = rows_times(self.inverse, by_factor.view(n * rank, -1))
            shared = memory.take(num_rows, n, rank + kept)
            torch.bmm(inner.view(num_rows, n, rank).sub_(along), self.taken, out=shared)
            variance -= torch.linalg.vector_norm(shared[..., :rank], dim=2).square_().T
        by_column = torch.mul(a.unsqueeze(1), self.columns.T, out=spread[: n * kept * num_columns].view(n, kept, -1))
        cross = rows_times(by_column.view(n * kept, -1), self.scaled_inverse).view(n, kept, num_rows)
        if shared is not None:
            cross -= shared[..., rank:].permute(1, 2, 0)
        pairs = len(self.rows)
        right = memory.take(n, pairs + g.shape[1], num_rows)  # what g is multiplied with: pairs, and g by variances
        for column, (start, stop) in enumerate(pairwise(self.bounds)):
            torch.mul(cross[:, column : column + 1], self.rows[start:stop], out=right[:, start:stop])
        torch.mul(g, variance.unsqueeze(1), out=right[:, pairs:])
        product = g @ right.mT  # (n, C, K + C)
        narrowed = product[..., :pairs] @ self.whitener
        torch.baddbmm(product[..., pairs:], narrowed, narrowed.mT, alpha=-1, out=found)


class _Memory:
    """Hands out parts of one tensor, one after the other."""

    def __init__(self, kept: Tensor) -> None:
        self._left = kept

    def take(self, *shape: int) -> Tensor:
        size = torch.Size(shape).numel()
        taken, self._left = self._left[:size].view(shape), self._left[size:]
        return taken
