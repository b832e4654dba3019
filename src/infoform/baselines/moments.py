"""Moments of the weights along a training, and batch-norm statistics for weights that no batch was run with.

mean ← (n mean + θ) / (n + 1)        square ← (n square + θ²) / (n + 1)        deviation = θ − mean
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from infoform.network.batches import device_of, read_batch


class Moments:
    """Running mean and second moment of every parameter, and its last `rank` deviations from the mean so far."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.count = 0
        self.mean: dict[str, Tensor] = {}
        self.square: dict[str, Tensor] = {}
        self.deviations: list[dict[str, Tensor]] = []

    def add(self, parameters: Mapping[str, Tensor]) -> None:
        """Take in the weights of one moment."""
        values = {name: value.detach().clone() for name, value in parameters.items()}
        self.count += 1
        share = 1 / self.count
        for name, value in values.items():
            zero = torch.zeros_like(value)
            self.mean[name] = self.mean.get(name, zero).lerp(value, share)
            self.square[name] = self.square.get(name, zero).lerp(value.square(), share)
        if self.rank:
            self.deviations.append({name: value - self.mean[name] for name, value in values.items()})
            del self.deviations[: -self.rank]

    def variance(self, name: str) -> Tensor:
        """Return the second moment less the square of the mean; rounding may not make it negative."""
        return (self.square[name] - self.mean[name].square()).clamp_min(0)


def has_batch_norm(network: nn.Module) -> bool:
    return any(_renewed(module) for module in network.modules())


def renewed_batch_norm(
    network: nn.Module, weights: Mapping[str, Tensor], loader: Iterable[Any], *, batches: int | None
) -> dict[str, Tensor]:
    """Return batch-norm buffers for these weights: the mean over `batches` batches (None: all), each counted alike.

    The network is left as found; everything but batch norm is in evaluation mode.
    """
    layers = {name: module for name, module in network.named_modules() if _renewed(module)}
    kept = [(module, module.training) for module in network.modules()]
    momenta = {name: layer.momentum for name, layer in layers.items()}
    buffers = {name: torch.zeros_like(value) for name, value in network.named_buffers() if _owner(name) in layers}
    try:
        network.eval()
        for layer in layers.values():
            layer.train()
            layer.momentum = None  # a plain mean over batches
        with torch.no_grad():
            for raw in islice(loader, batches):
                batch = read_batch(raw, device_of(network))
                functional_call(network, {**weights, **buffers}, batch.args, batch.kwargs)
    finally:
        for name, layer in layers.items():
            layer.momentum = momenta[name]
        for module, mode in kept:
            module.training = mode
    return buffers


def _renewed(module: nn.Module) -> bool:
    return isinstance(module, _BatchNorm) and module.track_running_stats


def _owner(buffer: str) -> str:
    return buffer.rpartition(".")[0]
