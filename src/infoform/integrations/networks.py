"""The small network of the scikit-learn estimators, and its training."""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional


def perceptron(inputs: int, outputs: int, hidden: Sequence[int]) -> nn.Sequential:
    """Return a network of linear layers with tanh between them, `hidden` being the sizes between the ends."""
    sizes = [inputs, *hidden, outputs]
    layers: list[nn.Module] = []
    for size, following in pairwise(sizes):
        layers += [nn.Linear(size, following), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def train(
    model: nn.Module,
    x: Tensor,  # (N, ...)
    y: Tensor,  # (N,) classes, or (N, C) numbers
    *,
    epochs: int,
    learning_rate: float,
    weight_decay: float,
    batch_size: int,
    generator: torch.Generator,
) -> None:
    """Train by AdamW, on cross entropy (classes) or squared errors (numbers), while the learning rate falls to zero."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * math.ceil(len(x) / batch_size))
    loss = functional.mse_loss if y.is_floating_point() else functional.cross_entropy
    model.train()
    for _ in range(epochs):
        for part in torch.randperm(len(x), generator=generator).split(batch_size):
            optimizer.zero_grad()
            loss(model(x[part]), y[part]).backward()
            optimizer.step()
            schedule.step()
    model.eval()
