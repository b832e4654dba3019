"""Gradient descent on the negative log-likelihood, as baselines that train networks need it."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from infoform.baselines.baseline import targets_of
from infoform.likelihoods import Likelihood
from infoform.network.batches import device_of, read_batch, read_outputs


def descend(
    network: nn.Module,
    loader: Iterable[Any],
    likelihood: Likelihood,
    optimizer: torch.optim.Optimizer,
    *,
    epochs: int,
    tick: Callable[[int], None],
    after_step: Callable[[int, int], None] | None = None,
) -> None:
    """Step after every batch; the network is in training mode, and then as found.

    `after_step` is called with the epoch and the batch's number in it, both from 0; `tick` after every epoch.
    """
    modes = {module: module.training for module in network.modules()}
    network.train()
    try:
        for epoch in range(epochs):
            batches = 0
            for raw in loader:
                batch = read_batch(raw, device_of(network))
                outputs = likelihood.check_outputs(read_outputs(network(*batch.args, **batch.kwargs)))
                loss = -likelihood.log_prob(outputs, targets_of(batch, outputs, likelihood)).mean()
                if not bool(loss.isfinite()):
                    raise ValueError(f"training came to a loss of {float(loss)} in epoch {epoch + 1}; lower the rate.")
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if after_step is not None:
                    after_step(epoch, batches)
                batches += 1
            if not batches:
                raise ValueError(f"the loader gave no batches in epoch {epoch + 1}; give one that can be read again.")
            tick(1)
    finally:
        for module, mode in modes.items():
            module.training = mode
