"""What a part of novelty must tell: one number an example, larger for what looks stranger."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from infoform.likelihoods import Likelihood


@dataclass(frozen=True)
class Sight:
    """What one forward pass has shown of N examples."""

    distances: Tensor  # (N, L): by layer, log distance to known inputs, standardised on known examples
    head: Tensor  # (N,): log distance of the last layer's inputs, scaled to length 1, to the nearest class
    outputs: Tensor  # (N, C) or (N, *P, C): of the trained network
    likelihood: Likelihood
    strangeness: Tensor | None = None  # (N,): of the answers, where the outputs are not known any more


class Part(ABC):
    """One way in which an input can be strange; holds no state.

    Its scores become p-values by the scores of known examples, so that only their order matters.
    """

    name: ClassVar[str]
    weight: ClassVar[float] = 1.0  # of its log p-value in Fisher's rule
    trusted: ClassVar[bool] = False  # whether it counts in full, whatever `novelty/trust.py` says of the features

    @abstractmethod
    def score(self, sight: Sight) -> Tensor | None:  # -> (N,)
        """Return how strange each example looks; None where the part makes no sense for this likelihood."""
