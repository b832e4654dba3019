"""Diagonal information: P = N f + prior; with an isotropic prior, P = N f + τ, every weight on its own.

A weight without information (f = 0) is held fixed where τ = 0, as in the paper.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor
from typing_extensions import Self

from infoform.curvature.curvature import Curvature
from infoform.curvature.request import StatisticsRequest
from infoform.posteriors.base import LayerPosterior, required
from infoform.posteriors.quantise import read_back, round_to
from infoform.posteriors.row_blocks import RowBlocks, row_covariance
from infoform.priors import LayerPrior


@dataclass(frozen=True, eq=False)
class Diag(LayerPosterior):
    """Independent weights with the exact diagonal of the information matrix."""

    structure: ClassVar[str] = "diag"
    OPTIONS: ClassVar[tuple[str, ...]] = ("storage",)

    prior: LayerPrior
    num_data: float
    information: Tensor  # f (G, A)
    information_steps: Tensor | None = None  # (2,), where f is stored as bytes

    @classmethod
    def request(cls, options: Mapping[str, Any]) -> StatisticsRequest:
        return StatisticsRequest(diagonal=True)

    @classmethod
    def from_curvature(  # type: ignore[override]
        cls, curvature: Curvature, *, prior: LayerPrior, num_data: float, storage: torch.dtype | None = None
    ) -> Self:
        diagonal = required(curvature.diagonal, "diagonal", curvature)
        return cls(prior, num_data, *round_to(diagonal, storage))

    @property
    def shape(self) -> tuple[int, int]:
        return self.information.shape[0], self.information.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        return torch.promote_types(self.information.dtype, torch.float32)

    @property
    def device(self) -> torch.device:
        return self.information.device

    @property
    def width(self) -> int:
        return 1 + self.prior.rank

    def transform(self, noise: Tensor) -> Tensor:
        return self._rows.transform(noise)

    def transform_(self, noise: Tensor) -> Tensor:
        return self._rows.without_shared(noise.mul_(self._rows.root), 0)

    def solve(self, x: Tensor) -> Tensor:
        return self._rows.solve(x)

    def quadratic_form(self, x: Tensor) -> Tensor:
        return self._rows.quadratic_form(x)

    def outer_covariance(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        return row_covariance(self._rows.row_variance(inputs), outputs)

    def log_det(self) -> Tensor:
        return self._rows.log_det()

    def diagonal(self) -> Tensor:
        return self._rows.diagonal_of()

    def dense(self) -> Tensor:
        return self._rows.dense()

    @cached_property
    def _rows(self) -> RowBlocks:
        information = read_back(self.information, self.information_steps, self.dtype)
        diagonal = self.num_data * information + self.prior.precision
        return RowBlocks(diagonal.to(self.dtype), self.prior)
