"""EFB: second moments corrected in the Kronecker eigenbasis.

P = N U Λ Uᵀ + τ I,    Λ = E Σ_v (U_Gᵀ ∇ U_A)²            George et al. 2018; Lee et al. 2020, eq. for I_efb
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from torch import Tensor
from typing_extensions import Self

from infoform.curvature.curvature import Curvature
from infoform.curvature.request import StatisticsRequest
from infoform.posteriors.base import required
from infoform.posteriors.kronecker import KroneckerPosterior
from infoform.priors import LayerPrior


@dataclass(frozen=True, eq=False)
class Efb(KroneckerPosterior):
    """The eigenbasis with its own second moments."""

    structure: ClassVar[str] = "efb"
    OPTIONS: ClassVar[tuple[str, ...]] = ("basis",)

    prior: LayerPrior
    num_data: float
    input_vectors: Tensor  # U_A (A, a)
    gradient_vectors: Tensor  # U_G (G, g)
    eigenvalues: Tensor  # Λ (g, a)

    @classmethod
    def request(cls, options: Mapping[str, Any]) -> StatisticsRequest:
        return StatisticsRequest(bases=frozenset({options.get("basis", "gradient")}))

    @classmethod
    def from_curvature(  # type: ignore[override]
        cls, curvature: Curvature, *, prior: LayerPrior, num_data: float, basis: str = "gradient"
    ) -> Self:
        if basis not in curvature.bases:
            required(None, f"{basis} basis", curvature)
        eigen = curvature.bases[basis]
        return cls(prior, num_data, eigen.input_vectors, eigen.gradient_vectors, eigen.eigenvalues)

    @cached_property
    def coefficients(self) -> Tensor:
        return self.num_data * self.eigenvalues + self._along
