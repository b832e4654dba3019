"""A structure from outside the package: the exact diagonal times a number."""

from dataclasses import dataclass
from typing import ClassVar

from infoform import LayerPrior, Structure
from infoform.curvature.curvature import Curvature
from infoform.curvature.dimensions import Dimensions
from infoform.curvature.request import StatisticsRequest
from infoform.posteriors import DiagPosterior


@dataclass(frozen=True, kw_only=True)
class Scaled(Structure):
    """P = N factor f + τ."""

    name: ClassVar[str] = "toy-structure"
    posterior: ClassVar[type[DiagPosterior]] = DiagPosterior

    factor: float = 0.5

    def statistics(self) -> StatisticsRequest:
        return StatisticsRequest(diagonal=True)

    def build(self, curvature: Curvature, *, prior: LayerPrior, num_data: float) -> DiagPosterior:
        assert curvature.diagonal is not None
        return DiagPosterior(prior, num_data, self.factor * curvature.diagonal)

    def planned_bytes(self, size: Dimensions, *, layer: str) -> int:
        return size.dtype.itemsize * size.weights
