"""P = P_G ⊗ P_A by the Cholesky factors of both, P_G = L_G L_Gᵀ and P_A = L_A L_Aᵀ: nothing is decomposed further.

A Cholesky factor costs a thirtieth of the eigenvectors, and a sample by it, L_G⁻ᵀ ε L_A⁻¹, a quarter of one by them.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from typing_extensions import Self

from infoform.common.float64 import in_double
from infoform.likelihoods import SharedVectorsCovariance

ROUNDING = 0.01  # of the damping: what the last digits of a factor may take off it


@dataclass(frozen=True)
class KroneckerRoots:
    """Everything a Gaussian of that precision is asked for."""

    of_gradients: Tensor  # L_G (G, G)
    of_inputs: Tensor  # L_A (A, A)

    @classmethod
    def of(cls, gradient_factor: Tensor, input_factor: Tensor, *, scale: float, damping: float) -> Self | None:
        """Return the roots of `scale` times each factor plus `damping`; None where rounding spoils one of them."""
        roots = [_root(factor, scale=scale, damping=damping) for factor in (gradient_factor, input_factor)]
        return None if roots[0] is None or roots[1] is None else cls(roots[0], roots[1])

    def transform(self, noise: Tensor) -> Tensor:  # (..., G, A) -> (..., G, A)
        """Return F · noise, with F Fᵀ = P⁻¹."""
        return _divided(_divided(noise, self.of_inputs).mT, self.of_gradients).mT

    def solve(self, x: Tensor) -> Tensor:  # (..., G, A) -> (..., G, A)
        """Return P⁻¹ x."""
        return self.transform(self._whiten(x))

    def quadratic_form(self, x: Tensor) -> Tensor:  # (..., G, A) -> (...)
        """Return xᵀ P x."""
        return (self.of_gradients.T @ x @ self.of_inputs).square().sum((-2, -1))

    def covariance(self, jacobians: Tensor) -> Tensor:  # (N, C, G, A) -> (N, C, C)
        """Return J_c P⁻¹ J_dᵀ."""
        white = self._whiten(jacobians).flatten(2)
        return white @ white.mT

    def outer_covariance(self, inputs: Tensor, outputs: Tensor) -> Tensor:  # (N, A), (N, C, G) -> (N, C, C)
        """Return J_c P⁻¹ J_dᵀ for Jacobians J_c = g_c aᵀ."""
        a, g = _whitened(inputs, self.of_inputs), _whitened(outputs, self.of_gradients)
        return a.square().sum(1)[:, None, None] * (g @ g.mT)

    def output_covariance(self, inputs: Tensor) -> SharedVectorsCovariance:  # (N, A)
        """Return the covariance of W a: P_G⁻¹ for all examples, times a number for each."""
        white = inputs @ self.whitener if torch.compiler.is_exporting() else _whitened(inputs, self.of_inputs)
        return SharedVectorsCovariance(self._output_vectors, white.square().sum(1, True))

    def log_det(self) -> Tensor:
        outputs, inputs = len(self.of_gradients), len(self.of_inputs)
        return 2 * (inputs * _log_product(self.of_gradients) + outputs * _log_product(self.of_inputs))

    def diagonal(self) -> Tensor:  # (G, A)
        return torch.outer(self.of_gradients.square().sum(1), self.of_inputs.square().sum(1))

    def dense(self) -> Tensor:  # (G * A, G * A)
        return torch.kron(self.of_gradients @ self.of_gradients.T, self.of_inputs @ self.of_inputs.T)

    @cached_property
    def whitener(self) -> Tensor:  # (A, A)
        """Return L_A⁻ᵀ: runtimes of exported graphs have products, and no triangular solves."""
        eye = torch.eye(len(self.of_inputs), dtype=torch.float64, device=self.of_inputs.device)
        return _whitened(eye, self.of_inputs.double()).to(self.of_inputs)

    @cached_property
    def _output_vectors(self) -> Tensor:  # L_G⁻ᵀ (G, G)
        eye = torch.eye(len(self.of_gradients), dtype=self.of_gradients.dtype, device=self.of_gradients.device)
        return _whitened(eye, self.of_gradients)

    def _whiten(self, x: Tensor) -> Tensor:  # (..., G, A) -> (..., G, A)
        return _whitened(_whitened(x, self.of_inputs).mT, self.of_gradients).mT


def _divided(x: Tensor, root: Tensor) -> Tensor:  # (..., n), (n, n) -> (..., n)
    """Return x L⁻¹."""
    rows: Tensor = torch.linalg.solve_triangular(root, x.reshape(-1, x.shape[-1]), upper=False, left=False)
    return rows.reshape(x.shape)


def _whitened(x: Tensor, root: Tensor) -> Tensor:  # (..., n), (n, n) -> (..., n)
    """Return x L⁻ᵀ."""
    rows: Tensor = torch.linalg.solve_triangular(root.T, x.reshape(-1, x.shape[-1]), upper=True, left=False)
    return rows.reshape(x.shape)


def _log_product(root: Tensor) -> Tensor:  # (n, n) -> ()
    """Return log det L, in float64."""
    return root.diagonal().double().log().sum()


def _root(factor: Tensor, *, scale: float, damping: float) -> Tensor | None:  # (n, n) -> (n, n)
    """Return the Cholesky factor of scale · factor + damping · I, found in float64.

    A factor has no eigenvalue below zero but for rounding, so every pivot is at least the damping. Where one is less,
    rounding is as large as the damping, and directions without data would get less precision than the prior gives.
    """
    damped = in_double(factor) * scale
    damped.diagonal().add_(damping)
    root: Tensor
    root, info = torch.linalg.cholesky_ex(damped)
    if int(info) != 0 or float(root.diagonal().min()) ** 2 < damping * (1 - ROUNDING):
        return None
    return root.to(factor).contiguous()
