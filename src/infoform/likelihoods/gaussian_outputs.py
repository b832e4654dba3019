"""Gaussian outputs of a network that is linear in its weights, and draws from them.

f ~ N(mean, covariance)        one Gaussian for each of the N examples
"""

from torch import Tensor

from infoform.likelihoods.balanced_noise import balanced_normal
from infoform.likelihoods.output_covariance import DenseCovariance, OutputCovariance


class GaussianOutputs:
    """The outputs of N examples, each with a Gaussian distribution of its own; immutable.

    Args:
        mean: means, (N, C).
        covariance: covariances, (N, C, C), or an `OutputCovariance`, which need not hold these matrices.
        samples: number M of draws that `draw` makes.
        seed: seed of those draws.
        temperature: what the outputs are divided by, mean and covariance being those of the undivided ones.

    Example:
        ```python
        import torch
        from infoform.likelihoods import GaussianOutputs
        outputs = GaussianOutputs(torch.zeros(5, 2), torch.eye(2).expand(5, 2, 2), samples=10)
        assert outputs.draw().shape == (10, 5, 2)
        ```
    """

    def __init__(
        self,
        mean: Tensor,
        covariance: Tensor | OutputCovariance,
        samples: int = 100,
        seed: int = 0,
        *,
        temperature: float = 1.0,
    ) -> None:
        self._mean = mean
        self._form = DenseCovariance(covariance) if isinstance(covariance, Tensor) else covariance
        self.samples, self.seed, self.temperature = samples, seed, temperature

    @property
    def mean(self) -> Tensor:  # (N, C)
        """Return the mean of every output."""
        return self._mean if self.temperature == 1 else self._mean / self.temperature

    @property
    def covariance(self) -> Tensor:  # (N, C, C)
        """Return the covariances as matrices; `variance` and `draw` do without them where there are many outputs."""
        return self._scaled(self._form.dense())

    @property
    def variance(self) -> Tensor:  # (N, C)
        """Return the variance of every output."""
        return self._scaled(self._form.variance)

    @property
    def row_sums(self) -> Tensor:  # (N, C)
        """Return the covariance of every output with the sum of all outputs, in float64."""
        return self._scaled(self._form.row_sums())

    def log_det_ratio(self, noise: Tensor) -> Tensor:  # (C,) -> (N,)
        """Return log det(covariance + diag(noise)) − log det(diag(noise)).

        Args:
            noise: positive variances, (C,).

        Returns:
            A number for each example, (N,).
        """
        return self._form.log_det_ratio(noise * self.temperature**2)

    def at_temperature(self, temperature: float) -> "GaussianOutputs":
        """Return the distribution of the outputs divided by a temperature.

        Args:
            temperature: T, positive; above 1 it makes answers less sure.

        Returns:
            Gaussians with mean / T and covariance / T², which share the root that draws need.
        """
        if temperature == 1:
            return self
        total = self.temperature * temperature
        return GaussianOutputs(self._mean, self._form, self.samples, self.seed, temperature=total)

    def draw(self) -> Tensor:  # (M, N, C)
        """Draw M times the outputs of all examples.

        The examples share the random numbers, as they share sampled networks: equal inputs have equal predictions, in
        any batch.

        Returns:
            The draws, (M, N, C); the same ones at every call.
        """
        noise = balanced_normal(self.samples, self._form.noise_width, seed=self.seed).to(self._mean)
        drawn = self._form.transform(noise)
        drawn = drawn if self.temperature == 1 else drawn / self.temperature
        return self.mean + drawn

    def _scaled(self, x: Tensor) -> Tensor:
        return x if self.temperature == 1 else x / self.temperature**2
