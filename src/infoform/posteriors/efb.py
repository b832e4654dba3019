"""EFB: second moments corrected in the Kronecker eigenbasis.

P = N U Λ Uᵀ + τ I,    Λ = E Σ_v (U_Gᵀ ∇ U_A)²            George et al. 2018; Lee et al. 2020, eq. for I_efb
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from torch import Tensor
from typing_extensions import Self

from infoform.common.checks import check_choice
from infoform.curvature.curvature import Curvature
from infoform.curvature.dimensions import Dimensions
from infoform.curvature.request import BASES, StatisticsRequest
from infoform.posteriors.base import required
from infoform.posteriors.kronecker import KroneckerPosterior
from infoform.posteriors.structure import Structure
from infoform.priors import LayerPrior


@dataclass(frozen=True, eq=False)
class EfbPosterior(KroneckerPosterior):
    """The eigenbasis with its own second moments."""

    structure: ClassVar[str] = "efb"
    tensor_shapes: ClassVar[Mapping[str, str]] = {
        "input_vectors": "A a",
        "gradient_vectors": "G g",
        "eigenvalues": "g a",
    }
    not_negative: ClassVar[tuple[str, ...]] = ("eigenvalues",)

    prior: LayerPrior
    num_data: float
    input_vectors: Tensor  # U_A (A, a)
    gradient_vectors: Tensor  # U_G (G, g)
    eigenvalues: Tensor  # Λ (g, a)

    @classmethod
    def from_curvature(
        cls, curvature: Curvature, *, prior: LayerPrior, num_data: float, basis: str = "gradient"
    ) -> Self:
        if basis not in curvature.bases:
            required(None, f"{basis} basis", curvature)
        eigen = curvature.bases[basis]
        return cls(prior, num_data, eigen.input_vectors, eigen.gradient_vectors, eigen.eigenvalues)

    @cached_property
    def coefficients(self) -> Tensor:
        return self.num_data * self.eigenvalues + self._along


@dataclass(frozen=True, kw_only=True)
class Efb(Structure):
    """A Kronecker eigenbasis with its own second moments.

    Args:
        basis: "gradient" (eigenvectors of the second moments of gradients), or "activation" (the paper's).
        preset: Name of the set of options that the object was made from; `get_structure` sets it.

    Raises:
        ValueError: If the basis is neither.

    Example:
        ```python
        laplace = infoform.Laplace(model, "classification", structure=infoform.Efb(basis="activation"))
        ```
    """

    name: ClassVar[str] = "efb"
    posterior: ClassVar[type[EfbPosterior]] = EfbPosterior

    basis: str = "gradient"
    preset: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        check_choice("basis", self.basis, BASES)

    def statistics(self) -> StatisticsRequest:
        return StatisticsRequest(bases=frozenset({self.basis}))

    def build(self, curvature: Curvature, *, prior: LayerPrior, num_data: float) -> EfbPosterior:
        return EfbPosterior.from_curvature(curvature, prior=prior, num_data=num_data, basis=self.basis)

    def planned_bytes(self, size: Dimensions, *, layer: str) -> int:
        return size.dtype.itemsize * (size.outputs * size.columns[0] + size.inputs * size.columns[1] + size.pairs)
