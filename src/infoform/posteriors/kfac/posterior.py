"""KFAC: A ⊗ G with damping.

    damping="factored"   P = (√N A + √τ I) ⊗ (√N G + √τ I)       Ritter et al. 2018; the paper's KFAC
    damping="exact"      P = N A ⊗ G + τ I                       the paper's OKF

A = E Σ_s a aᵀ and G = E Σ_v,s g gᵀ / S: with S shared positions, assumed uncorrelated, the sum over positions
belongs to one factor only (Grosse and Martens 2016). In row-major order P is kron(G, A).

The first is a Kronecker product itself, and the Cholesky factors of its two parts tell all of it. The second, and the
first under a prior that is not isotropic or too weak for them, are diagonal in the eigenvectors of A and G, which are
found when they are first needed.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import Self

from infoform.curvature.curvature import Curvature
from infoform.curvature.eigenbasis import check_moment, symmetric_eigh
from infoform.likelihoods import OutputCovariance
from infoform.posteriors.base import required, shared_across_priors
from infoform.posteriors.kfac.cholesky import KroneckerRoots
from infoform.posteriors.kronecker import KroneckerPosterior
from infoform.priors import LayerPrior

DAMPINGS = ("factored", "exact")


@dataclass(frozen=True, eq=False)
class KfacPosterior(KroneckerPosterior):
    """A Kronecker product of two factors."""

    structure: ClassVar[str] = "kfac"
    tensor_shapes: ClassVar[Mapping[str, str]] = {"input_factor": "A A", "gradient_factor": "G G"}

    prior: LayerPrior
    num_data: float
    input_factor: Tensor  # A (A, A)
    gradient_factor: Tensor  # G (G, G)
    damping: str

    @classmethod
    def from_curvature(
        cls, curvature: Curvature, *, prior: LayerPrior, num_data: float, damping: str = "factored"
    ) -> Self:
        if damping not in DAMPINGS:
            raise ValueError(f"damping must be one of {', '.join(map(repr, DAMPINGS))}, got {damping!r}.")
        input_factor = required(curvature.input_factor, "input factor", curvature)
        gradient_factor = required(curvature.gradient_factor, "gradient factor", curvature)
        assert curvature.positions is not None
        for factor in (input_factor, gradient_factor):
            check_moment(factor, name=curvature.name)
        return cls(prior, num_data, input_factor, gradient_factor / curvature.positions, damping)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.gradient_factor), len(self.input_factor)

    @property
    def dtype(self) -> torch.dtype:
        return self.input_factor.dtype

    @property
    def device(self) -> torch.device:
        return self.input_factor.device

    @shared_across_priors
    def input_vectors(self) -> Tensor:  # U_A (A, A)
        return self._of_inputs[1]

    @shared_across_priors
    def gradient_vectors(self) -> Tensor:  # U_G (G, G)
        return self._of_gradients[1]

    @cached_property
    def coefficients(self) -> Tensor:
        a, g = self._of_inputs[0], self._of_gradients[0].unsqueeze(1)
        if self.damping == "exact":
            return self.num_data * g * a + self._along
        n, t = math.sqrt(self.num_data), self._along.sqrt()
        return (n * g + t) * (n * a + t)

    def transform(self, noise: Tensor) -> Tensor:
        return super().transform(noise) if self._roots is None else self._roots.transform(noise)

    def solve(self, x: Tensor) -> Tensor:
        return super().solve(x) if self._roots is None else self._roots.solve(x)

    def quadratic_form(self, x: Tensor) -> Tensor:
        return super().quadratic_form(x) if self._roots is None else self._roots.quadratic_form(x)

    def covariance(self, jacobians: Tensor) -> Tensor:
        return super().covariance(jacobians) if self._roots is None else self._roots.covariance(jacobians)

    def outer_covariance(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        if self._roots is None:
            return super().outer_covariance(inputs, outputs)
        return self._roots.outer_covariance(inputs, outputs)

    def output_covariance(self, inputs: Tensor) -> OutputCovariance:
        return super().output_covariance(inputs) if self._roots is None else self._roots.output_covariance(inputs)

    def prepare_export(self) -> None:
        super().prepare_export()
        if self._roots is not None:
            _ = self._roots.whitener

    def log_det(self) -> Tensor:
        return super().log_det() if self._roots is None else self._roots.log_det()

    def diagonal(self) -> Tensor:
        return super().diagonal() if self._roots is None else self._roots.diagonal()

    def dense(self) -> Tensor:
        return super().dense() if self._roots is None else self._roots.dense()

    @cached_property
    def _roots(self) -> KroneckerRoots | None:
        if self.damping != "factored" or not self.prior.positive or not isinstance(self.prior.precision, float):
            return None
        scale, damping = math.sqrt(self.num_data), math.sqrt(self.prior.precision)
        return KroneckerRoots.of(self.gradient_factor, self.input_factor, scale=scale, damping=damping)

    @shared_across_priors
    def _of_inputs(self) -> tuple[Tensor, Tensor]:  # (A,), (A, A)
        return symmetric_eigh(self.input_factor, name="")

    @shared_across_priors
    def _of_gradients(self) -> tuple[Tensor, Tensor]:  # (G,), (G, G)
        return symmetric_eigh(self.gradient_factor, name="")
