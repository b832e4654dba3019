"""The toy regression of the paper: y = x³ + noise, one hidden layer of seven ReLUs; shared by toy and toy-rank."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

import infoform
from infoform.experiments.base import Settings
from infoform.experiments.networks.shallow import Training, train_stack


@dataclass(frozen=True)
class ToySettings(Settings):
    """Data and training as in the paper; the number of steps, and restarts, of which the best fit is kept, are ours."""

    examples: int = 100
    width: int = 7
    noise: float = 3.0  # standard deviation of the data's
    steps: int = 20_000
    learning_rate: float = 1e-3
    restarts: int = 8


def toy_data(settings: ToySettings, seed: int) -> tuple[Tensor, Tensor]:  # (N, 1), (N, 1)
    """Draw x ~ U(−4, 4) and y ~ N(x³, σ²)."""
    generator = torch.Generator().manual_seed(seed)
    x = 8 * torch.rand(settings.examples, 1, generator=generator, dtype=torch.float64) - 4
    return x, x**3 + settings.noise * torch.randn(x.shape, generator=generator, dtype=torch.float64)


def toy_network(settings: ToySettings, seed: int) -> nn.Sequential:
    """Train from several random weights, by Adam on the mean squared error of all data; return the best fit."""
    x, y = (part.expand(settings.restarts, -1, -1) for part in toy_data(settings, seed))
    training = Training(settings.steps, settings.examples, settings.learning_rate)
    stack = train_stack(x, y, width=settings.width, training=training, seed=seed)[settings.steps]
    errors = (stack(x) - y).square().mean((1, 2))
    return stack.network(int(errors.argmin()))


def untrained(settings: ToySettings) -> nn.Sequential:
    """Return a network of the same form, for methods that do not start at trained weights."""
    return nn.Sequential(nn.Linear(1, settings.width), nn.ReLU(), nn.Linear(settings.width, 1)).double()


def exact_fit(model: nn.Module, x: Tensor, y: Tensor, *, noise: float) -> infoform.Laplace:
    """Return a fit that any structure, the exact block included, can be had from; with the exact Fisher matrix."""
    laplace = infoform.Laplace(
        model, infoform.Regression(noise), fit_options=infoform.FitOptions(statistics="all", fisher="exact")
    )
    return laplace.fit([(x, y)], progress=False)
