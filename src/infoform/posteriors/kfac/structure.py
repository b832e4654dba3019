"""KFAC as a structure: one Kronecker product a layer."""

from dataclasses import dataclass, field
from typing import ClassVar

from infoform.common.checks import check_choice
from infoform.curvature.curvature import Curvature
from infoform.curvature.dimensions import Dimensions
from infoform.curvature.request import StatisticsRequest
from infoform.posteriors.kfac.posterior import DAMPINGS, KfacPosterior
from infoform.posteriors.structure import Structure
from infoform.priors import LayerPrior


@dataclass(frozen=True, kw_only=True)
class Kfac(Structure):
    """A Kronecker product of two factors in every layer.

    Args:
        damping: "factored" adds √τ to each factor (the paper's KFAC), "exact" adds τ to their product (its OKF).
        preset: Name of the set of options that the object was made from; `get_structure` sets it.

    Raises:
        ValueError: If the damping is neither.

    Example:
        ```python
        laplace = infoform.Laplace(model, "classification", structure=infoform.Kfac(damping="exact"))
        ```
    """

    name: ClassVar[str] = "kfac"
    posterior: ClassVar[type[KfacPosterior]] = KfacPosterior

    damping: str = "factored"
    preset: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        check_choice("damping", self.damping, DAMPINGS)

    def statistics(self) -> StatisticsRequest:
        return StatisticsRequest(factors=True)

    def build(self, curvature: Curvature, *, prior: LayerPrior, num_data: float) -> KfacPosterior:
        return KfacPosterior.from_curvature(curvature, prior=prior, num_data=num_data, damping=self.damping)

    def planned_bytes(self, size: Dimensions, *, layer: str) -> int:
        return size.dtype.itemsize * (size.outputs**2 + size.inputs**2)
