"""Gaussian outputs of a network that is linear in its weights, and draws from them.

f ~ N(mean, covariance)        one Gaussian for each of the N examples
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from infoform.likelihoods.balanced_noise import balanced_normal


@dataclass(frozen=True, eq=False)
class GaussianOutputs:
    """The outputs of N examples, each with a Gaussian distribution of its own.

    Args:
        mean: means, (N, C).
        covariance: covariances, (N, C, C).
        samples: number M of draws that `draw` makes.
        seed: seed of those draws.

    Example:
        ```python
        import torch
        from infoform.likelihoods import GaussianOutputs
        outputs = GaussianOutputs(torch.zeros(5, 2), torch.eye(2).expand(5, 2, 2), samples=10)
        assert outputs.draw().shape == (10, 5, 2)
        ```
    """

    mean: Tensor  # (N, C)
    covariance: Tensor  # (N, C, C)
    samples: int = 100
    seed: int = 0

    @property
    def variance(self) -> Tensor:  # (N, C)
        """Return the variance of every output."""
        return self.covariance.diagonal(dim1=1, dim2=2)

    def at_temperature(self, temperature: float) -> "GaussianOutputs":
        """Return the distribution of the outputs divided by a temperature.

        Args:
            temperature: T, positive; above 1 it makes answers less sure.

        Returns:
            Gaussians with mean / T and covariance / T².
        """
        if temperature == 1:
            return self
        scaled = replace(self, mean=self.mean / temperature, covariance=self.covariance / temperature**2)
        scaled.__dict__["_root"] = self._root / temperature  # found once for all temperatures
        return scaled

    def draw(self) -> Tensor:  # (M, N, C)
        """Draw M times the outputs of all examples.

        The examples share the random numbers, as they share sampled networks: equal inputs have equal predictions, in
        any batch.

        Returns:
            The draws, (M, N, C); the same ones at every call.
        """
        noise = balanced_normal(self.samples, self.mean.shape[1], seed=self.seed).to(self.mean)
        drawn: Tensor = self.mean + torch.einsum("ncd,md->mnc", self._root, noise)
        return drawn

    @cached_property
    def _root(self) -> Tensor:  # (N, C, C)
        values, vectors = torch.linalg.eigh(self.covariance.double())
        root: Tensor = (vectors * values.clamp_min(0).sqrt().unsqueeze(-2)) @ vectors.mT
        return root.to(self.mean.dtype)
