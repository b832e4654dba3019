"""SWA: one network with the mean of the weights along SGD at a constant learning rate; Izmailov et al. 2018."""

from collections.abc import Iterable
from typing import Any, ClassVar

from torch import Tensor, nn

from infoform.baselines.averaged import AveragedBaseline
from infoform.baselines.baseline import Bar
from infoform.likelihoods import Likelihood
from infoform.network.batches import Batch


class SWA(AveragedBaseline):
    """The mean of the weights along a training, with batch-norm statistics of its own.

    Args:
        model: the network to start from; it is not changed.
        likelihood: name in `infoform.likelihoods.LIKELIHOODS`, or a likelihood.
        epochs: number of epochs that training goes on for.
        every: number of batches between two sets of weights; unless given, weights are collected once an epoch.
        learning_rate: constant learning rate of SGD.
        momentum: momentum of SGD.
        weight_decay: weight decay of SGD.
        seed: seed of training and of predictions.

    Raises:
        ValueError: if `epochs` is not a whole number of at least 1.

    Example:
        ```python
        import torch
        from infoform.baselines import SWA
        data = [(torch.randn(20, 3), torch.randint(2, (20,)))]
        swa = SWA(torch.nn.Linear(3, 2), "classification", epochs=2).fit(data, progress=False)
        assert swa.predict(torch.randn(5, 3)).probs.shape == (5, 2)
        ```
    """

    name: ClassVar[str] = "swa"

    def __init__(
        self,
        model: nn.Module,
        likelihood: str | Likelihood,
        *,
        epochs: int = 10,
        every: int | None = None,
        learning_rate: float = 1e-2,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
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
        self.default_samples = 1

    def _train(self, network: nn.Module, loader: Iterable[Any], bar: Bar) -> None:
        self._set_mean(network, self._collect(network, loader, bar, rank=0), loader)

    def _sampled_outputs(self, batch: Batch, samples: int, seed: int) -> Tensor:  # -> (M, N, C)
        return self._forward(batch).expand(samples, -1, -1)
