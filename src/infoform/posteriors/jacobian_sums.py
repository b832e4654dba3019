"""What examples' Jacobians add up to, J P⁻¹ Jᵀ, where the Jacobians come one example at a time."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from infoform.posteriors.base import LayerPosterior


class JacobianSums(ABC):
    """The covariances of C outputs for some examples, from Jacobians in a layer's weights."""

    @abstractmethod
    def add(self, jacobians: Tensor) -> None:  # (C, G, A)
        """Take the Jacobians of the next example.

        Args:
            jacobians: Gradients of C outputs in the layer's weights (C, G, A).
        """

    @abstractmethod
    def covariance(self) -> Tensor:  # -> (N, C, C)
        """Return J_c P⁻¹ J_dᵀ of all examples that were added."""


class WholeJacobians(JacobianSums):
    """Jacobians that are kept, for a structure that wants all of them at once."""

    def __init__(self, posterior: "LayerPosterior") -> None:
        self._posterior = posterior
        self._kept: list[Tensor] = []

    def add(self, jacobians: Tensor) -> None:
        self._kept.append(jacobians)

    def covariance(self) -> Tensor:
        return self._posterior.covariance(torch.stack(self._kept))
