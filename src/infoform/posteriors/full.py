"""The exact block: P = N I + τ I, for layers small enough to hold it; the reference of all others.

Kept as eigenpairs of I, so that with an isotropic prior another N or τ costs nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import Self

from infoform.common.exporting import split_unless_exporting
from infoform.curvature.curvature import Curvature
from infoform.curvature.dimensions import Dimensions
from infoform.curvature.eigenbasis import symmetric_eigh
from infoform.curvature.request import StatisticsRequest
from infoform.likelihoods import DenseCovariance, OutputCovariance
from infoform.posteriors.base import LayerPosterior, power
from infoform.posteriors.structure import Structure
from infoform.priors import LayerPrior

SCRATCH = 2**22  # numbers of Jacobians held at a time


@dataclass(frozen=True, eq=False)
class FullPosterior(LayerPosterior):
    """All correlations of one layer."""

    structure: ClassVar[str] = "full"
    tensor_shapes: ClassVar[Mapping[str, str]] = {"eigenvalues": "W", "eigenvectors": "W W"}
    not_negative: ClassVar[tuple[str, ...]] = ("eigenvalues",)

    prior: LayerPrior
    num_data: float
    eigenvalues: Tensor  # (G * A,)
    eigenvectors: Tensor  # (G * A, G * A)
    num_outputs: int

    @classmethod
    def from_curvature(cls, curvature: Curvature, *, prior: LayerPrior, num_data: float) -> Self:
        if curvature.block is None:
            size = curvature.shape[0] * curvature.shape[1]
            raise ValueError(
                f"structure='full' needs the exact block of layer '{curvature.name}' ({size} weights), which the fit "
                "did not collect; fit with structure='full' or statistics='all' and block_limit of at least "
                f"{size}, or leave the layer out with layers=."
            )
        values, vectors = symmetric_eigh(curvature.block, name=curvature.name)
        return cls(prior, num_data, values, vectors, curvature.shape[0])

    @property
    def shape(self) -> tuple[int, int]:
        return self.num_outputs, len(self.eigenvalues) // self.num_outputs

    @property
    def dtype(self) -> torch.dtype:
        return self.eigenvectors.dtype

    @property
    def device(self) -> torch.device:
        return self.eigenvectors.device

    def transform(self, noise: Tensor) -> Tensor:
        return self._apply_power(noise, -0.5)

    def solve(self, x: Tensor) -> Tensor:
        return self._apply_power(x, -1.0)

    def quadratic_form(self, x: Tensor) -> Tensor:
        precisions, vectors = self._eigenpairs
        return (precisions * (x.flatten(-2) @ vectors) ** 2).sum(-1)

    def outer_covariance(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        return self.covariance(torch.einsum("ncg,na->ncga", outputs, inputs))  # full layers are small ones

    def output_covariance(self, inputs: Tensor) -> OutputCovariance:
        eye = torch.eye(self.shape[0], dtype=inputs.dtype, device=inputs.device)
        step = max(1, SCRATCH // (self.shape[0] * len(self.eigenvalues)))
        parts = split_unless_exporting(inputs, step)
        found = [self.outer_covariance(part, eye.expand(part.shape[0], -1, -1)) for part in parts]
        return DenseCovariance(torch.cat(found))

    def log_det(self) -> Tensor:
        self._check_invertible()
        precisions, _ = self._eigenpairs
        return precisions[precisions > self._floor].double().log().sum()

    def diagonal(self) -> Tensor:
        precisions, vectors = self._eigenpairs
        return (vectors**2 @ precisions).reshape(self.shape)

    def dense(self) -> Tensor:
        precisions, vectors = self._eigenpairs
        return vectors * precisions @ vectors.T

    def _apply_power(self, x: Tensor, exponent: float) -> Tensor:
        self._check_invertible()
        precisions, vectors = self._eigenpairs
        scale = power(precisions, exponent, floor=self._floor)
        scaled = ((x.flatten(-2) @ vectors * scale) @ vectors.T).reshape(x.shape)
        if self.prior.positive:
            return scaled
        return torch.where(self.diagonal() > self._floor, scaled, 0)  # exactly, not up to rounding

    @cached_property
    def _eigenpairs(self) -> tuple[Tensor, Tensor]:  # of P: (G * A,), (G * A, G * A)
        information = self.num_data * self.eigenvalues
        if isinstance(self.prior.precision, float):
            return information + self.prior.precision, self.eigenvectors
        prior = self.prior.dense(self.shape[1], like=self.eigenvectors)
        eye = torch.eye(self.shape[0], dtype=self.dtype, device=self.device)
        precision = self.eigenvectors * information @ self.eigenvectors.T + torch.kron(eye, prior)
        return symmetric_eigh(precision, name="")

    @property
    def _floor(self) -> float:
        """Precisions up to here are rounding, not information; with a prior there are none such."""
        if self.prior.positive:
            return 0.0
        precisions, _ = self._eigenpairs
        return float(precisions.max()) * len(precisions) * torch.finfo(self.dtype).eps

    def _check_invertible(self) -> None:
        if self.prior.positive:
            return
        precisions, _ = self._eigenpairs
        missing = int((precisions <= self._floor).sum() - (self.diagonal() <= self._floor).sum())
        if missing > 0:
            raise ValueError(
                f"with prior_precision = 0 the exact block has no precision in {missing} directions; "
                "give a prior_precision above 0, or fit on more data."
            )


@dataclass(frozen=True, kw_only=True)
class Full(Structure):
    """The exact information matrix of every layer, for layers small enough to hold it.

    Example:
        ```python
        laplace = infoform.Laplace(model, "classification", structure=infoform.Full())
        ```
    """

    name: ClassVar[str] = "full"
    posterior: ClassVar[type[FullPosterior]] = FullPosterior

    def statistics(self) -> StatisticsRequest:
        return StatisticsRequest(block=True)

    def build(self, curvature: Curvature, *, prior: LayerPrior, num_data: float) -> FullPosterior:
        return FullPosterior.from_curvature(curvature, prior=prior, num_data=num_data)

    def planned_bytes(self, size: Dimensions, *, layer: str) -> int:
        return size.dtype.itemsize * (size.weights**2 + size.weights)

    def check_layers(self, shapes: Mapping[str, tuple[int, int]], *, block_limit: int) -> None:
        for name, (outputs, inputs) in shapes.items():
            size = outputs * inputs
            if size > block_limit:
                raise ValueError(
                    f"structure='full' holds layers of at most block_limit={block_limit} weights, "
                    f"got {size} in layer '{name}'; leave it out with layers=, raise block_limit "
                    f"({8 * size**2 / 2**30:.3g} GiB in float64), or use another structure."
                )
