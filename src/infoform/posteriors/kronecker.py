"""Precisions that are diagonal in a Kronecker eigenbasis: P = U C Uᵀ + τ (I − U Uᵀ), U = kron(U_G, U_A).

Shared by KFAC and EFB, which differ in C alone. The second term is there where the basis is truncated. A prior that
is not isotropic enters by its diagonal in the basis, uᵀ Q u; that is all of it where U_A are eigenvectors of Q.
"""

import math
from abc import abstractmethod
from functools import cached_property

import torch
from torch import Tensor

from infoform.curvature.eigenbasis import expanded_diagonal
from infoform.likelihoods import OutputCovariance, SharedVectorsCovariance
from infoform.posteriors.base import LayerPosterior, power, shared_across_priors
from infoform.posteriors.row_blocks import row_covariance


class KroneckerPosterior(LayerPosterior):
    """Everything but the coefficients C."""

    input_vectors: Tensor | shared_across_priors[Tensor]  # U_A (A, a)
    gradient_vectors: Tensor | shared_across_priors[Tensor]  # U_G (G, g)

    @property
    @abstractmethod
    def coefficients(self) -> Tensor:  # C (g, a)
        """Return the precisions along the pairs of eigenvectors."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.gradient_vectors.shape[0], self.input_vectors.shape[0]

    @property
    def dtype(self) -> torch.dtype:
        return self.input_vectors.dtype

    @property
    def device(self) -> torch.device:
        return self.input_vectors.device

    @property
    def output_width(self) -> int:
        return 1

    def transform(self, noise: Tensor) -> Tensor:
        # the symmetric root: U C^(-1/2) z without Uᵀ would save a product, and be another draw wherever rounding gives
        # an eigenvector another sign, or other vectors of an eigenspace, as the sums over other batches do
        return self._apply_power(noise, -0.5)

    def solve(self, x: Tensor) -> Tensor:
        return self._apply_power(x, -1.0)

    def quadratic_form(self, x: Tensor) -> Tensor:
        inner = self._project(x)
        kept = (self.coefficients * inner**2).sum((-2, -1))
        if not self._truncated:
            return kept
        return kept + self._precision * ((x - self._expand(inner)) ** 2).sum((-2, -1))

    def covariance(self, jacobians: Tensor) -> Tensor:
        self._check_invertible()
        if not self._truncated:
            return super().covariance(jacobians)
        # J P^(-1/2) along the basis and off it: a sum of squares, which cannot cancel
        inner = self._project(jacobians)
        along = (inner * power(self.coefficients, -0.5, floor=self._floor)).flatten(2)
        off = (jacobians - self._expand(inner)).flatten(2)
        return along @ along.mT + off @ off.mT / self._precision

    def outer_covariance(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        self._check_invertible()
        a, g = inputs @ self.input_vectors, outputs @ self.gradient_vectors
        covariance = row_covariance(a**2 @ power(self.coefficients, -1.0, floor=self._floor).T, g)
        if not self._truncated:
            return covariance
        # |a|² g gᵀ less its part along the basis, as two parts none of which is negative: a difference would cancel
        off_a, off_g = inputs - a @ self.input_vectors.T, outputs - g @ self.gradient_vectors.T
        off = _squares(off_a) * (outputs @ outputs.mT) + _squares(a) * (off_g @ off_g.mT)
        return covariance + off / self._precision

    def output_covariance(self, inputs: Tensor) -> OutputCovariance:
        self._check_invertible()
        a = inputs @ self.input_vectors
        values = a.square() @ power(self.coefficients, -1.0, floor=self._floor).T  # (N, g)
        if not self._truncated:
            return SharedVectorsCovariance(self.gradient_vectors, values)
        off = (inputs - a @ self.input_vectors.T).square().sum(1)  # (N,)
        values = values + (off / self._precision).unsqueeze(1)
        num_outputs, kept = self.gradient_vectors.shape
        return SharedVectorsCovariance(
            self.gradient_vectors, values, None if kept == num_outputs else inputs.square().sum(1) / self._precision
        )

    def log_det(self) -> Tensor:
        self._check_invertible()
        kept = self.coefficients[self.coefficients > self._floor].double().log().sum()
        left = self.shape[0] * self.shape[1] - self.coefficients.numel()
        return kept + left * math.log(self._precision) if left else kept

    def diagonal(self) -> Tensor:
        if not self._truncated:
            return expanded_diagonal(self.input_vectors, self.gradient_vectors, self.coefficients)
        extra = self.coefficients - self._precision
        return expanded_diagonal(self.input_vectors, self.gradient_vectors, extra) + self._precision

    def dense(self) -> Tensor:
        basis = torch.kron(self.gradient_vectors, self.input_vectors)
        kept = basis * self.coefficients.flatten() @ basis.T
        if not self._truncated:
            return kept
        eye = torch.eye(len(basis), dtype=self.dtype, device=self.device)
        return kept + self._precision * (eye - basis @ basis.T)

    def _apply_power(self, x: Tensor, exponent: float) -> Tensor:
        self._check_invertible()
        inner = self._project(x)
        scaled = self._expand(power(self.coefficients, exponent, floor=self._floor) * inner)
        if not self.prior.positive:  # exactly, not up to the rounding of eigenvectors
            return torch.where(self.diagonal() > self._floor, scaled, 0)
        if not self._truncated:
            return scaled
        return scaled + float(self._precision**exponent) * (x - self._expand(inner))

    def _project(self, x: Tensor) -> Tensor:  # (..., G, A) -> (..., g, a)
        return self.gradient_vectors.T @ x @ self.input_vectors

    def _expand(self, inner: Tensor) -> Tensor:  # (..., g, a) -> (..., G, A)
        return self.gradient_vectors @ inner @ self.input_vectors.T

    @cached_property
    def _along(self) -> Tensor:  # (a,): prior precision along the columns of U_A
        return self.prior.along(self.input_vectors)

    @cached_property
    def _precision(self) -> float:
        """Return the prior precision off the basis: its mean over the directions that a truncated basis leaves out."""
        if isinstance(self.prior.precision, float):
            return self.prior.precision
        eye = torch.eye(self.shape[1], dtype=self.dtype, device=self.device)
        total = self.shape[0] * float(self.prior.along(eye).sum())
        left = self.shape[0] * self.shape[1] - self.coefficients.numel()
        return (total - self.gradient_vectors.shape[1] * float(self._along.sum())) / max(1, left)

    @property
    def _truncated(self) -> bool:
        return any(u.shape[0] > u.shape[1] for u in (self.input_vectors, self.gradient_vectors))

    @cached_property
    def _floor(self) -> float:
        """Coefficients up to here are rounding, not information; with a prior there are none such."""
        if self.prior.positive:
            return 0.0
        return float(self.coefficients.max()) * self.coefficients.numel() * torch.finfo(self.dtype).eps

    def _check_invertible(self) -> None:
        if self.prior.positive:
            return
        missing = int((self.coefficients <= self._floor).sum())
        fixed = int((self.diagonal() <= self._floor).sum())
        if self._truncated or missing > fixed:
            raise ValueError(
                f"with prior_precision = 0 this {self.structure} posterior has no precision in {missing - fixed} "
                "directions; give a prior_precision above 0."
                if not self._truncated
                else f"a truncated {self.structure} basis needs prior_precision above 0, got 0; raise it."
            )


def _squares(rows: Tensor) -> Tensor:  # (N, n) -> (N, 1, 1)
    return rows.square().sum(1)[:, None, None]
