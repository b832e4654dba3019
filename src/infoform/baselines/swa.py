"""SWA: one network with the mean of the weights along SGD at a constant learning rate; Izmailov et al. 2018."""

from collections.abc import Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from infoform.baselines.baseline import Bar, Baseline
from infoform.baselines.moments import collect_moments, has_batch_norm, renewed_batch_norm
from infoform.common.checks import check_whole
from infoform.likelihoods import Likelihood
from infoform.network.batches import Batch


class SWA(Baseline):
    """The mean of the weights, with batch-norm statistics of its own.

    Training goes on from the model given for `epochs` epochs; weights are taken every `every` batches (None: once an
    epoch).
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
        super().__init__(model, likelihood, seed=seed)
        check_whole("epochs", epochs)
        self.epochs, self.every = epochs, every
        self.learning_rate, self.momentum, self.weight_decay = learning_rate, momentum, weight_decay
        self.default_samples = 1

    def _train(self, network: nn.Module, loader: Iterable[Any], bar: Bar) -> None:
        moments = collect_moments(
            network,
            loader,
            self.likelihood,
            bar,
            rank=0,
            epochs=self.epochs,
            every=self.every,
            learning_rate=self.learning_rate,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
        )
        set_weights(network, moments.mean, loader, batches=None)

    def _sampled_outputs(self, batch: Batch, samples: int, seed: int) -> Tensor:  # -> (M, N, C)
        return self._forward(batch).expand(samples, -1, -1)


def set_weights(network: nn.Module, weights: dict[str, Tensor], loader: Iterable[Any], *, batches: int | None) -> None:
    """Give the network these weights, and batch-norm statistics that go with them."""
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.copy_(weights[name])
    if has_batch_norm(network):
        network.load_state_dict(renewed_batch_norm(network, {}, loader, batches=batches), strict=False)
