"""The covariance of a layer's own outputs W a under an INF posterior, for any number of outputs.

Output g depends on row g of the weights alone, so that its Jacobian is e_g aᵀ, and with the notation of jacobians.py

    Cov(W a) = diag(v) − z zᵀ,    v_g = aᵀ R_g⁻¹ a,    z_g = (1 + k)^(-1/2) Qᵀ Cᵀ R⁻¹ vec(e_g aᵀ)

with z (G, K): linear in G, where the matrix itself is not.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from infoform.common.exporting import split_unless_exporting
from infoform.likelihoods import DiagonalCovariance

SCRATCH = 2**22  # numbers held at a time besides the result


@dataclass(frozen=True, eq=False)
class OutputRows:
    """What does not depend on the examples."""

    inverse: Tensor  # D⁻¹ (G, A)
    scaled_inverse: Tensor  # S D⁻¹ (G, A)
    columns: Tensor  # U_A (A, a)
    factor: Tensor | None  # W V^(1/2) (A, p)
    split: Callable[[Tensor], tuple[Tensor, Tensor]] | None  # of inputs, so that nothing cancels: see row_blocks.py
    taken: Tensor | None  # (G, p, p + a): the root of what W takes from rows' variances; what it takes from pairs
    pair_rows: Tensor  # (G, K): of each kept pair the column of U_G
    pair_columns: Tensor  # (K,): of each kept pair the number of its column of U_A
    whitener: Tensor  # (K, K): N^(1/2) L Q (1 + k)^(-1/2)

    def covariance(self, inputs: Tensor) -> DiagonalCovariance:  # (N, A)
        """Return the covariance of W a for every example, computed and returned in the dtype of the inputs."""
        if inputs.dtype != self.inverse.dtype:
            return self._as_wide_as(inputs).covariance(inputs)
        (num_rows, num_columns), kept = self.inverse.shape, self.columns.shape[1]
        rank = 0 if self.factor is None else self.factor.shape[1]
        each = max(rank, kept) * num_columns + (2 * rank + 2 * kept + len(self.pair_columns)) * num_rows
        parts = [self._of_part(part) for part in split_unless_exporting(inputs, max(1, SCRATCH // each))]
        variances, taken = zip(*parts, strict=True)
        if len(parts) == 1:
            return DiagonalCovariance(variances[0], taken[0])
        return DiagonalCovariance(torch.cat(variances), torch.cat(taken))

    def _as_wide_as(self, inputs: Tensor) -> "OutputRows":
        return replace(
            self,
            inverse=self.inverse.to(inputs),
            scaled_inverse=self.scaled_inverse.to(inputs),
            columns=self.columns.to(inputs),
            factor=None if self.factor is None else self.factor.to(inputs),
            taken=None if self.taken is None else self.taken.to(inputs),
            pair_rows=self.pair_rows.to(inputs),
            whitener=self.whitener.to(inputs),
        )

    def _of_part(self, a: Tensor) -> tuple[Tensor, Tensor]:  # (n, A) -> (n, G), (n, G, K)
        num_rows, kept = len(self.inverse), self.columns.shape[1]
        along = None
        if self.split is not None:
            a, along = self.split(a)  # (n, A), (n, p)
        variance = a.square() @ self.inverse.T
        cross = (a.unsqueeze(1) * self.columns.T).flatten(0, 1) @ self.scaled_inverse.T  # D⁻¹ S a U_A (n a, G)
        cross = cross.view(a.shape[0], kept, num_rows).mT  # (n, G, a)
        if self.factor is not None and self.taken is not None and along is not None:
            rank = self.factor.shape[1]
            variance = variance + along.square().sum(1, keepdim=True)
            inner = self.inverse @ (a.unsqueeze(1) * self.factor.T).flatten(0, 1).T  # by rows, as the products want it
            shared = (inner.view(num_rows, a.shape[0], rank) - along) @ self.taken  # (G, n, p + a)
            variance = variance - torch.linalg.vector_norm(shared[..., :rank], dim=2).square_().T
            cross = cross - shared[..., rank:].transpose(0, 1)
        pairs = cross.index_select(2, self.pair_columns).mul_(self.pair_rows)  # (n, G, K)
        return variance, (pairs.flatten(0, 1) @ self.whitener).view_as(pairs)
