"""The toy regression of the paper (its first experiment): y = x³ + noise, one hidden layer of seven units."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev
from torch.nn import functional

from infoform.laplace import Laplace
from infoform.options import FitOptions
from infoform.posteriors.network_posterior import Posterior

STRUCTURES = ("diag", "inf", "full")


@dataclass(frozen=True)
class ToySettings:
    """The settings of the toy regression; they determine all numbers."""

    seed: int = 0
    examples: int = 100
    noise: float = 3.0  # standard deviation of the data's
    steps: int = 3000
    prior_precision: float = 1.0  # of the weights of a network with standardised targets


@dataclass(frozen=True)
class ToyResult:
    """The toy regression: data, true curve, mean, and the predictive standard deviation of each structure."""

    x: Tensor  # (N,)
    y: Tensor  # (N,)
    grid: Tensor  # (M,)
    truth: Tensor  # (M,)
    mean: Tensor  # (M,)
    noise: float
    deviations: dict[str, Tensor]  # (M,)


def run_toy(settings: ToySettings) -> ToyResult:
    """Fit y = x³ + noise with seven hidden units; predict within and beyond the data, linearised."""
    generator = torch.Generator().manual_seed(settings.seed)
    x = torch.rand(settings.examples, 1, generator=generator, dtype=torch.float64) * 8 - 4
    y = x**3 + settings.noise * torch.randn(x.shape, generator=generator, dtype=torch.float64)
    scale = y.std()  # the network sees standardised targets
    with torch.random.fork_rng():
        torch.manual_seed(settings.seed)
        model = nn.Sequential(nn.Linear(1, 7), nn.Tanh(), nn.Linear(7, 1)).double()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.steps)
        for _ in range(settings.steps):
            optimizer.zero_grad()
            functional.mse_loss(model(x), y / scale).backward()
            optimizer.step()
            schedule.step()
    laplace = Laplace(model, "regression", fit_options=FitOptions(statistics="all", fisher="exact"), seed=settings.seed)
    laplace.fit([(x, y / scale)], progress=False)
    assert laplace.noise is not None
    grid = torch.linspace(-6, 6, 241, dtype=torch.float64)
    deviations = {}
    for structure in STRUCTURES:
        posterior = laplace.posterior(structure=structure, prior_precision=settings.prior_precision)
        epistemic = _linearised_variance(laplace, posterior, grid.unsqueeze(1))
        deviations[structure] = scale * (epistemic + laplace.noise**2).sqrt()
    with torch.no_grad():
        mean = scale * model(grid.unsqueeze(1)).squeeze(1)
    return ToyResult(x[:, 0], y[:, 0], grid, grid**3, mean, float(scale * laplace.noise), deviations)


def _linearised_variance(laplace: Laplace, posterior: Posterior, x: Tensor) -> Tensor:  # (M, 1) -> (M,)
    """Return J P⁻¹ Jᵀ, layer by layer."""
    means = {name: laplace.layers[name].mean for name in posterior.layers}

    def forward(matrices: dict[str, Tensor]) -> Tensor:
        weights = {k: v for name, m in matrices.items() for k, v in laplace.layers[name].as_parameters(m).items()}
        outputs: Tensor = functional_call(laplace.model, weights, (x,))
        return outputs.squeeze(1)

    jacobians = jacrev(forward)(means)  # (M, G, A) a layer
    variance = [(j * posterior.layers[name].solve(j)).sum((-2, -1)) for name, j in jacobians.items()]
    return torch.stack(variance).sum(0)
