"""What a prior must tell: its precision on one layer's weights."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor


@dataclass(frozen=True)
class LayerPrior:
    """The prior precision of one layer: diag(precision), the same for every output row.

    A structure asks only for what is here, so that a richer prior (one that knows the layer's inputs, say) is one
    more field here and one more term in each structure.
    """

    precision: float | Tensor  # τ, or (A,): one for each column

    @property
    def isotropic(self) -> bool:
        return not isinstance(self.precision, Tensor)


class Prior(ABC):
    """A Gaussian prior over all weights, centred on the trained ones; immutable."""

    name: ClassVar[str]

    @abstractmethod
    def layer(self, name: str) -> LayerPrior:
        """Return the prior of one layer."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return what the constructor needs to make this object again, as JSON can hold it."""
