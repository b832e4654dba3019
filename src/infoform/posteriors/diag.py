"""Diagonal information: P = N f + prior; with an isotropic prior, P = N f + τ, every weight on its own.

A weight without information (f = 0) is held fixed where τ = 0, as in the paper.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import Self

from infoform.common.checks import check_choice
from infoform.curvature.curvature import Curvature
from infoform.curvature.dimensions import Dimensions
from infoform.curvature.request import StatisticsRequest
from infoform.likelihoods import DiagonalCovariance, OutputCovariance
from infoform.posteriors.base import LayerPosterior, required
from infoform.posteriors.quantise import read_back, round_to
from infoform.posteriors.row_blocks import RowBlocks, row_covariance
from infoform.posteriors.structure import STORAGES, Structure, diagonal_bytes
from infoform.priors import LayerPrior


@dataclass(frozen=True, eq=False)
class DiagPosterior(LayerPosterior):
    """Independent weights with the exact diagonal of the information matrix."""

    structure: ClassVar[str] = "diag"
    tensor_shapes: ClassVar[Mapping[str, str]] = {"information": "G A", "information_steps": "2"}
    not_negative: ClassVar[tuple[str, ...]] = ("information",)

    prior: LayerPrior
    num_data: float
    information: Tensor  # f (G, A)
    information_steps: Tensor | None = None  # (2,), where f is stored as bytes

    @classmethod
    def from_curvature(
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

    @property
    def output_width(self) -> int:
        return 1

    def transform(self, noise: Tensor) -> Tensor:
        return self._rows.transform(noise)

    def transform_(self, noise: Tensor) -> Tensor:
        return self._rows.without_shared(noise.mul_(self._rows.root), 0)

    def solve(self, x: Tensor) -> Tensor:
        return self._rows.solve(x)

    def quadratic_form(self, x: Tensor) -> Tensor:
        return self._rows.quadratic_form(x)

    def covariance(self, jacobians: Tensor) -> Tensor:
        return self._rows.covariance(jacobians)

    def outer_covariance(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        return row_covariance(self._rows.row_variance(inputs), outputs)

    def output_covariance(self, inputs: Tensor) -> OutputCovariance:
        return DiagonalCovariance(self._rows.row_variance(inputs))

    def row_variances(self, rows: Tensor) -> Tensor:
        if self._rows.factor is not None:
            return super().row_variances(rows)
        return self._rows.inverse[rows]

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


@dataclass(frozen=True, kw_only=True)
class Diag(Structure):
    """Independent weights with the exact diagonal of the information matrix.

    Args:
        storage: "float32", "bfloat16" or "uint8" for the diagonal; None for the dtype of the statistics.

    Raises:
        ValueError: If the storage is none of these.

    Example:
        ```python
        laplace = infoform.Laplace(model, "classification", structure=infoform.Diag(storage="uint8"))
        ```
    """

    name: ClassVar[str] = "diag"
    posterior: ClassVar[type[DiagPosterior]] = DiagPosterior

    storage: str | None = None

    def __post_init__(self) -> None:
        check_choice("storage", self.storage, [None, *STORAGES])

    def statistics(self) -> StatisticsRequest:
        return StatisticsRequest(diagonal=True)

    def build(self, curvature: Curvature, *, prior: LayerPrior, num_data: float) -> DiagPosterior:
        return DiagPosterior.from_curvature(
            curvature, prior=prior, num_data=num_data, storage=None if self.storage is None else STORAGES[self.storage]
        )

    def planned_bytes(self, size: Dimensions, *, layer: str) -> int:
        return diagonal_bytes(size, self.storage)


def structure_for(structure: Structure, *, only_diagonal: bool) -> Structure:
    """Return the structure of a layer where all others have this one.

    Args:
        structure: The structure that was asked for.
        only_diagonal: Whether nothing but the diagonal is measured of the layer.

    Returns:
        The same, or `Diag` with the same storage.
    """
    if not only_diagonal or isinstance(structure, Diag):
        return structure
    storage = getattr(structure, "storage", None)
    return Diag(storage=storage if storage in STORAGES else None)
