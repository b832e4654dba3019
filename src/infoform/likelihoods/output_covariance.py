"""The covariance of N examples' outputs, in a form that suits what is known of it.

dense           Σ (N, C, C)                                  any covariance
diagonal        diag(v) − z zᵀ, z (N, C, K)                  memory linear in C; z may be left out
shared vectors  H diag(s) Hᵀ + r (I − H Hᵀ), H (C, g)        the same H for all examples; r only where HᵀH = I

Draws from the second form need no root of a C × C matrix. With B = v^(-1/2) z and L Lᵀ = I − BᵀB (K × K),

    y = ε − B Bᵀ ε − B L η     has the covariance   (I − B Bᵀ)² + B (I − BᵀB) Bᵀ = I − B Bᵀ,

and v^(1/2) y the one that is wanted.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from infoform.common.exporting import log_det, plus_identity
from infoform.common.float64 import in_double


class OutputCovariance(ABC):
    """Covariances of the outputs of N examples, one for each; immutable.

    Example:
        ```python
        import torch
        from infoform.likelihoods import DiagonalCovariance
        covariance = DiagonalCovariance(torch.tensor([[2.0, 3.0]]), torch.tensor([[[1.0], [1.0]]]))
        assert covariance.dense().tolist() == [[[1.0, -1.0], [-1.0, 2.0]]]
        ```
    """

    @property
    @abstractmethod
    def variance(self) -> Tensor:  # (N, C)
        """Return the variance of every output."""

    @property
    @abstractmethod
    def noise_width(self) -> int:
        """Return how many standard normal numbers a draw takes."""

    @abstractmethod
    def row_sums(self) -> Tensor:  # (N, C)
        """Return the covariance of every output with the sum of all outputs.

        Returns:
            Row sums in float64, (N, C).
        """

    @abstractmethod
    def dense(self) -> Tensor:  # (N, C, C)
        """Return the matrices themselves.

        Returns:
            Covariances, (N, C, C).
        """

    @abstractmethod
    def transform(self, noise: Tensor) -> Tensor:  # (M, W) -> (M, N, C)
        """Turn standard normal numbers into deviations with these covariances.

        Args:
            noise: standard normal numbers, (M, `noise_width`), which all examples share.

        Returns:
            Deviations from the mean, (M, N, C).
        """

    def log_det_ratio(self, noise: Tensor) -> Tensor:  # (C,) -> (N,)
        """Return log det(Σ + diag(noise)) − log det(diag(noise)).

        Args:
            noise: positive variances, (C,).

        Returns:
            A number for each example, (N,).
        """
        covariance, root = in_double(self.dense()), in_double(noise).sqrt()
        relative = covariance / (root[:, None] * root)
        return log_det(plus_identity(relative)).to(noise)


@dataclass(frozen=True, eq=False)
class DenseCovariance(OutputCovariance):
    """Any covariances, each a matrix.

    Args:
        matrices: covariances, (N, C, C).
        multiple_of: others that these are a multiple of, made by `times`.
        factor: how many times.

    Example:
        ```python
        import torch
        from infoform.likelihoods import DenseCovariance
        assert DenseCovariance(torch.eye(3).expand(5, 3, 3)).variance.shape == (5, 3)
        ```
    """

    matrices: Tensor  # (N, C, C)
    multiple_of: "DenseCovariance | None" = None  # whose root theirs is
    factor: float = 1.0  # of that, positive

    def times(self, factor: float) -> "DenseCovariance":
        """Return these covariances times a positive number; a root for draws is found once for all multiples.

        Args:
            factor: The number.

        Returns:
            The covariances, which share the root.
        """
        return DenseCovariance(factor * self.matrices, self, factor)

    @property
    def variance(self) -> Tensor:
        return self.matrices.diagonal(dim1=1, dim2=2)

    @property
    def noise_width(self) -> int:
        return self.matrices.shape[1]

    def row_sums(self) -> Tensor:
        return self.matrices.double().sum(-1)

    def dense(self) -> Tensor:
        return self.matrices

    def transform(self, noise: Tensor) -> Tensor:
        return torch.einsum("ncd,md->mnc", self._root, noise)

    @cached_property
    def _root(self) -> Tensor:  # (N, C, C)
        if self.multiple_of is not None:
            return math.sqrt(self.factor) * self.multiple_of._root
        values, vectors = torch.linalg.eigh(self.matrices.double())
        root: Tensor = (vectors * values.clamp_min(0).sqrt().unsqueeze(-2)) @ vectors.mT
        return root.to(self.matrices.dtype)


@dataclass(frozen=True, eq=False)
class DiagonalCovariance(OutputCovariance):
    """diag(v) − z zᵀ: independent outputs, less what K directions take away.

    Args:
        variances: v, (N, C).
        taken: z, (N, C, K); None where outputs are independent.

    Example:
        ```python
        import torch
        from infoform.likelihoods import DiagonalCovariance
        covariance = DiagonalCovariance(torch.tensor([[2.0, 3.0]]), torch.tensor([[[1.0], [1.0]]]))
        assert covariance.variance.tolist() == [[1.0, 2.0]]
        ```
    """

    variances: Tensor  # v (N, C)
    taken: Tensor | None = None  # z (N, C, K)

    @property
    def variance(self) -> Tensor:
        if self.taken is None:
            return self.variances
        length: Tensor = torch.linalg.vector_norm(self.taken, dim=2)
        return self.variances - length.square_()

    @property
    def noise_width(self) -> int:
        return self.variances.shape[1] + (0 if self.taken is None else self.taken.shape[2])

    def row_sums(self) -> Tensor:
        sums = self.variances.double()
        if self.taken is None:
            return sums
        taken = self.taken.double()
        return sums - (taken @ taken.sum(1).unsqueeze(2)).squeeze(2)

    def dense(self) -> Tensor:
        dense = torch.diag_embed(self.variances)
        return dense if self.taken is None else torch.baddbmm(dense, self.taken, self.taken.mT, alpha=-1)

    def transform(self, noise: Tensor) -> Tensor:
        scale, count = self._scale, self.variances.shape[1]
        if self.taken is None:
            return scale * noise.unsqueeze(1)
        own, other = noise[:, :count], noise[:, count:]  # ε (M, C), η (M, K)
        inner = torch.matmul(own, self._relative) + torch.matmul(other, self._root.mT)  # (N, M, K)
        drawn = torch.baddbmm(own.expand(len(inner), -1, -1), inner, self._relative.mT, alpha=-1)  # (N, M, C)
        return drawn.mul_(scale.unsqueeze(1)).transpose(0, 1)

    def log_det_ratio(self, noise: Tensor) -> Tensor:
        relative = in_double(self.variances) / in_double(noise)  # (N, C)
        ratio = relative.log1p().sum(1)
        if self.taken is None:
            return ratio.to(noise)
        scaled = in_double(self.taken) / (in_double(noise).sqrt() * (1 + relative).sqrt()).unsqueeze(2)
        inner = -scaled.mT @ scaled
        inner.diagonal(dim1=1, dim2=2).add_(1)
        taken: Tensor = torch.linalg.slogdet(inner).logabsdet
        return (ratio + taken).to(noise)

    @cached_property
    def _scale(self) -> Tensor:  # v^(1/2) (N, C)
        return self.variances.clamp_min(0).sqrt()

    @cached_property
    def _relative(self) -> Tensor:  # B (N, C, K)
        assert self.taken is not None
        least = torch.finfo(self._scale.dtype).tiny
        return torch.where(self._scale > 0, 1 / self._scale.clamp_min(least), 0).unsqueeze(2) * self.taken

    @cached_property
    def _root(self) -> Tensor:  # L (N, K, K)
        inner = -(self._relative.mT @ self._relative).double()
        inner.diagonal(dim1=1, dim2=2).add_(1)
        root: Tensor
        root, info = torch.linalg.cholesky_ex(inner)
        if bool(info.any()):  # where next to nothing is left of a direction, rounding may take it below zero
            values, vectors = torch.linalg.eigh(inner)
            root = vectors * values.clamp_min(0).sqrt().unsqueeze(-2)
        return root.to(self.variances.dtype)


@dataclass(frozen=True, eq=False)
class SharedVectorsCovariance(OutputCovariance):
    """H diag(s) Hᵀ + r (I − H Hᵀ): all examples have the same vectors, and variances of their own along them.

    Args:
        vectors: H, (C, g); orthonormal columns where there is a rest.
        values: s, (N, g), or (N, 1) where an example has one variance for all vectors.
        rest: r, (N,): the variance in all directions off the vectors; None where these are all directions.

    Example:
        ```python
        import torch
        from infoform.likelihoods import SharedVectorsCovariance
        covariance = SharedVectorsCovariance(torch.eye(2), torch.tensor([[4.0, 9.0]]))
        assert covariance.variance.tolist() == [[4.0, 9.0]]
        ```
    """

    vectors: Tensor  # H (C, g)
    values: Tensor  # s (N, g) or (N, 1)
    rest: Tensor | None = None  # r (N,)

    @property
    def variance(self) -> Tensor:
        squares = self.vectors.square()
        variance = self.values * squares.sum(1) if self.values.shape[1] == 1 else self.values @ squares.T
        if self.rest is None:
            return variance
        return variance + torch.outer(self.rest, (1 - squares.sum(1)).clamp_min(0))  # not below 0 by rounding

    @property
    def noise_width(self) -> int:
        return sum(self.vectors.shape) if self.rest is not None else self.vectors.shape[1]

    def row_sums(self) -> Tensor:
        vectors = self.vectors.double()
        total = vectors.sum(0)
        sums = (self.values.double() * total) @ vectors.T
        return sums if self.rest is None else sums + torch.outer(self.rest.double(), 1 - vectors @ total)

    def dense(self) -> Tensor:
        dense = (self.vectors * self.values.unsqueeze(1)) @ self.vectors.T
        if self.rest is None:
            return dense
        eye = torch.eye(len(self.vectors), dtype=dense.dtype, device=dense.device)
        return dense + self.rest[:, None, None] * (eye - self.vectors @ self.vectors.T)

    def transform(self, noise: Tensor) -> Tensor:
        width = self.vectors.shape[1]
        own, root = noise[:, :width], self.values.clamp_min(0).sqrt()
        if self.values.shape[1] == 1:
            drawn = root * (own @ self.vectors.T).unsqueeze(1)
        else:
            drawn = ((root.unsqueeze(1) * own) @ self.vectors.T).transpose(0, 1)
        if self.rest is None:
            return drawn
        other = noise[:, width:]
        off = other - (other @ self.vectors) @ self.vectors.T  # (M, C)
        return drawn + self.rest.clamp_min(0).sqrt().unsqueeze(1) * off.unsqueeze(1)
