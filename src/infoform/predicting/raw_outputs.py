"""The outputs of a network before they become a prediction: the temperature and the noise are still free.

linear            f ~ N(plain, covariance), the covariance being there or known from the last layer's inputs
mc, linear-mc     f_1, ..., f_M of sampled networks
"""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class RawOutputs:
    """What the network puts out for N examples, as one of these."""

    plain: Tensor  # (N, C): of the trained network
    covariance: Tensor | None = None  # (N, C, C)
    samples: Tensor | None = None  # (M, N, C)
    inputs: Tensor | None = None  # (N, A): of the last layer, where it alone has a posterior
    kind: str = ""  # how they were had
    reason: str = ""  # and why so

    def __len__(self) -> int:
        return len(self.plain)
