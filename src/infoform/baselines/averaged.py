"""What SWA and SWAG share: training goes on at a constant learning rate, and weights are collected along it."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from infoform.baselines.baseline import Bar, Baseline
from infoform.baselines.descent import descend
from infoform.baselines.moments import Moments, has_batch_norm, renewed_batch_norm
from infoform.common.checks import check_whole
from infoform.likelihoods import Likelihood


class AveragedBaseline(Baseline):
    """A baseline whose network has the mean of the weights along SGD at a constant learning rate."""

    def __init__(
        self,
        model: nn.Module,
        likelihood: str | Likelihood,
        *,
        epochs: int,
        every: int | None,
        learning_rate: float,
        momentum: float,
        weight_decay: float,
        seed: int,
    ) -> None:
        super().__init__(model, likelihood, seed=seed)
        check_whole("epochs", epochs)
        self.epochs, self.every = epochs, every
        self.learning_rate, self.momentum, self.weight_decay = learning_rate, momentum, weight_decay

    def _collect(self, network: nn.Module, loader: Iterable[Any], bar: Bar, *, rank: int) -> Moments:
        """Train the network on; return the moments of its weights every `every` batches, or after each epoch."""
        moments = Moments(rank)
        every, step = self.every, 0

        def after_step(epoch: int, number: int) -> None:
            nonlocal step
            step += 1
            if every is not None and step % every == 0:
                moments.add(dict(network.named_parameters()))

        def after_epoch(count: int) -> None:
            if every is None:
                moments.add(dict(network.named_parameters()))
            tick(count)

        tick = bar("collect weights", self.epochs)
        optimizer = torch.optim.SGD(
            network.parameters(), self.learning_rate, momentum=self.momentum, weight_decay=self.weight_decay
        )
        descend(
            network, loader, self.likelihood, optimizer, epochs=self.epochs, tick=after_epoch, after_step=after_step
        )
        if not moments.count:
            raise ValueError(f"{step} steps of training gave no weights to average with every={every}; lower it.")
        return moments

    def _set_mean(
        self, network: nn.Module, moments: Moments, loader: Iterable[Any], *, batches: int | None = None
    ) -> None:
        """Give the network the mean weights, and batch-norm statistics that go with them, of `batches` batches."""
        with torch.no_grad():
            for name, parameter in network.named_parameters():
                parameter.copy_(moments.mean[name])
        if has_batch_norm(network):
            network.load_state_dict(renewed_batch_norm(network, {}, loader, batches=batches), strict=False)
