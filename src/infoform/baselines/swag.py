"""SWAG: a Gaussian from the weights along SGD at a constant learning rate; Maddox et al. 2019, algorithm 1.

    θ ~ N(mean, s (½ diag(square − mean²) + D Dᵀ / (2 (K − 1))))        D: the last K deviations from the running mean

Batch-norm statistics are renewed for every sample. `predict(...).plain` is SWA's prediction: `network` has the mean.
"""

import math
from collections.abc import Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from infoform.baselines.averaged import AveragedBaseline
from infoform.baselines.baseline import Bar, WeightBaseline
from infoform.baselines.moments import Moments, has_batch_norm, renewed_batch_norm
from infoform.common.checks import check_whole
from infoform.common.randomness import isolated
from infoform.likelihoods import Likelihood


class SWAG(AveragedBaseline, WeightBaseline):
    """A Gaussian with the first and second moments of the weights along a training, and `rank` deviations.

    The training loader is kept, to renew batch-norm statistics for every sample.

    Args:
        model: the network to start from; it is not changed.
        likelihood: name in `infoform.likelihoods.LIKELIHOODS`, or a likelihood.
        epochs: number of epochs that training goes on for.
        every: number of batches between two sets of weights; unless given, weights are collected once an epoch.
        rank: number of deviations from the mean that are kept, the last ones.
        scale: factor of the covariance.
        learning_rate: constant learning rate of SGD.
        momentum: momentum of SGD.
        weight_decay: weight decay of SGD.
        batch_norm_batches: number of batches that renew batch-norm statistics; all unless given.
        seed: seed of training and of predictions.

    Attributes:
        moments: moments of the weights, after a fit.

    Raises:
        ValueError: if `epochs`, `rank` or `scale` is out of its range.

    Example:
        ```python
        import torch
        from infoform.baselines import SWAG
        data = [(torch.randn(20, 3), torch.randint(2, (20,)))]
        swag = SWAG(torch.nn.Linear(3, 2), "classification", epochs=4).fit(data, progress=False)
        assert swag.predict(torch.randn(5, 3), samples=10).samples.shape == (10, 5, 2)
        ```
    """

    name: ClassVar[str] = "swag"

    def __init__(
        self,
        model: nn.Module,
        likelihood: str | Likelihood,
        *,
        epochs: int = 10,
        every: int | None = None,
        rank: int = 20,
        scale: float = 1.0,
        learning_rate: float = 1e-2,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        batch_norm_batches: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(
            model,
            likelihood,
            epochs=epochs,
            every=every,
            learning_rate=learning_rate,
            momentum=momentum,
            weight_decay=weight_decay,
            seed=seed,
        )
        check_whole("rank", rank, least=2)
        if not 0 <= scale < math.inf:
            raise ValueError(f"scale must be at least 0 and finite, got {scale}.")
        self.rank, self.scale = rank, scale
        self.batch_norm_batches = batch_norm_batches
        self.default_samples = 30
        self.moments: Moments | None = None
        self._loader: Iterable[Any] = ()
        self._drawn: tuple[tuple[int, int, float], dict[str, Tensor]] | None = None

    def _train(self, network: nn.Module, loader: Iterable[Any], bar: Bar) -> None:
        self._loader, self._drawn = loader, None
        self.moments = self._collect(network, loader, bar, rank=self.rank)
        if len(self.moments.deviations) < 2:
            raise ValueError("SWAG needs weights of two moments or more, got one; train longer or lower `every`.")
        self._set_mean(network, self.moments, loader, batches=self.batch_norm_batches)

    def _draw(self, count: int, seed: int) -> dict[str, Tensor]:
        """Return samples and their batch-norm statistics; the last ones are kept, as many batches ask for them."""
        key = (count, seed, self.scale)
        if self._drawn is None or self._drawn[0] != key:
            generator = torch.Generator().manual_seed(seed)
            samples = [self._one(generator) for _ in range(count)]
            if has_batch_norm(self.network):
                for one in samples:
                    with isolated(seed, loader=self._loader):  # so that all samples see the same batches
                        batches = self.batch_norm_batches
                        one |= renewed_batch_norm(self.network, one, self._loader, batches=batches)
            self._drawn = key, {name: torch.stack([one[name] for one in samples]) for name in samples[0]}
        return self._drawn[1]

    def _one(self, generator: torch.Generator) -> dict[str, Tensor]:
        assert self.moments is not None
        moments, kept = self.moments, len(self.moments.deviations)
        shared = torch.randn(kept, generator=generator)
        weights = {}
        for name, mean in moments.mean.items():
            own = torch.randn(mean.shape, generator=generator).to(mean) * moments.variance(name).sqrt()
            low_rank = torch.zeros_like(mean)
            for number, deviation in zip(shared.tolist(), moments.deviations, strict=True):
                low_rank.add_(deviation[name], alpha=number)
            both = own / math.sqrt(2) + low_rank / math.sqrt(2 * (kept - 1))
            weights[name] = mean + math.sqrt(self.scale) * both
        return weights
