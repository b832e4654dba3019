"""KFAC: A ⊗ G with damping.

    damping="factored"   P = (√N A + √τ I) ⊗ (√N G + √τ I)       Ritter et al. 2018; the paper's KFAC
    damping="exact"      P = N A ⊗ G + τ I                       the paper's OKF

A = E Σ_s a aᵀ and G = E Σ_v,s g gᵀ / S: with S shared positions, assumed uncorrelated, the sum over positions
belongs to one factor only (Grosse and Martens 2016). In row-major order P is kron(G, A).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from torch import Tensor
from typing_extensions import Self

from infoform.curvature import Curvature, Wanted
from infoform.eigenbasis import symmetric_eigh
from infoform.posteriors.base import required
from infoform.posteriors.kronecker import KroneckerPosterior
from infoform.priors import LayerPrior

DAMPINGS = ("factored", "exact")


@dataclass(frozen=True, eq=False)
class Kfac(KroneckerPosterior):
    """A Kronecker product of two factors, kept as their eigenpairs."""

    structure: ClassVar[str] = "kfac"
    OPTIONS: ClassVar[tuple[str, ...]] = ("damping",)

    input_values: Tensor  # (A,)
    gradient_values: Tensor  # (G,)
    damping: str

    @classmethod
    def wanted(cls, options: Mapping[str, Any]) -> Wanted:
        return Wanted(factors=True)

    @classmethod
    def from_curvature(  # type: ignore[override]
        cls, curvature: Curvature, *, prior: LayerPrior, num_data: float, damping: str = "factored"
    ) -> Self:
        if damping not in DAMPINGS:
            raise ValueError(f"damping must be one of {', '.join(map(repr, DAMPINGS))}, got {damping!r}.")
        input_factor = required(curvature.input_factor, "input factor", curvature)
        gradient_factor = required(curvature.gradient_factor, "gradient factor", curvature)
        assert curvature.positions is not None
        input_values, input_vectors = symmetric_eigh(input_factor, name=curvature.name)
        gradient_values, gradient_vectors = symmetric_eigh(gradient_factor, name=curvature.name)
        return cls(
            prior,
            num_data,
            input_vectors,
            gradient_vectors,
            input_values,
            gradient_values / curvature.positions,
            damping,
        )

    @cached_property
    def coefficients(self) -> Tensor:
        a, g = self.input_values, self.gradient_values.unsqueeze(1)
        if self.damping == "exact":
            return self.num_data * g * a + self._along
        n, t = math.sqrt(self.num_data), self._along.sqrt()
        return (n * g + t) * (n * a + t)
