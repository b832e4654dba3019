"""Test log-likelihood over (N, τ) on UCI, by networks with sampled weights: how much of the plane is good?

    log p(y | x) = log 1/M Σ_m N(y; f(x; θ_m), σ²),    θ_m ~ N(θ*, P(N, τ)⁻¹),  M = 100                 supplement

Since P(sN, sτ) = s P(N, τ), samples for one τ / N serve all pairs with it, scaled by s^(-1/2); the grid is even in
log N and log τ, so that of n² pairs only 2n − 1 need a posterior. σ is that of the training residuals. The values are
of test data: the figure shows how sensitive a method is; it chooses nothing.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import infoform
from infoform.experiments.base import Experiment, Settings
from infoform.experiments.networks.shallow import Training
from infoform.experiments.uci import landscape_page as uci_landscape_page
from infoform.experiments.uci.networks import SETS, networks, split_of
from infoform.experiments.uci.structures import EXACT, STRUCTURES
from infoform.posteriors import Structure
from infoform.records.study_result import Result

SHOWN: Mapping[str, Structure] = {
    **{label: STRUCTURES[label] for label in ("diag", "kfac", "inf 5%", "inf 25%", "ours 5%", "ours")},
    "exact": EXACT,
}


@dataclass(frozen=True)
class LandscapeSettings(Settings):
    """Powers of ten: of the factor of N, and of τ; both from the first to the second in so many steps of one size."""

    sets: tuple[str, ...] = SETS
    split: int = 0
    epochs: int = 40
    batch_size: int = 32
    learning_rate: float = 1e-3
    points: int = 11  # of each axis
    data_powers: tuple[float, float] = (-2.0, 2.0)
    precision_powers: tuple[float, float] = (-1.0, 3.0)
    samples: int = 100
    test_points: int = 200  # at most


class UciLandscape(Experiment[LandscapeSettings]):
    """Test log-likelihood over (N, τ)."""

    name = "uci-landscape"
    summary = "Test log-likelihood over the plane of (N, τ), by sampled weights, on nine UCI sets."
    reproduces = "the figures of hyperparameter landscapes (supplement)"

    def settings(self, *, quick: bool = False, full: bool = False) -> LandscapeSettings:
        if quick:
            return LandscapeSettings(sets=("boston", "kin8nm"), points=5)
        return LandscapeSettings(points=100, test_points=100_000) if full else LandscapeSettings()

    def pieces(self, settings: LandscapeSettings) -> Sequence[str]:
        return [f"{name}/{label}" for name in settings.sets for label in SHOWN]

    def run_piece(self, key: str, settings: LandscapeSettings, *, cache: Path) -> dict[str, Any]:
        name, label = key.split("/")
        training = Training(settings.epochs, settings.batch_size, settings.learning_rate)
        stack = networks(name, training=training, cache=cache, seed=settings.seed)[settings.epochs]
        split = split_of(name, settings.split)
        laplace = infoform.Laplace(
            stack.network(settings.split),
            "regression",
            fit_options=infoform.FitOptions(statistics="all", fisher="exact"),
        )
        laplace.fit([(split.train_x, split.train_y)], progress=False)
        x, y = split.test_x[: settings.test_points], split.test_y[: settings.test_points]
        values = landscape(laplace, SHOWN[label], x, y, settings) - math.log(split.target_std)
        return {"log_likelihood": [[float(f"{value:.4g}") for value in row] for row in values.tolist()]}

    def page(self, result: Result) -> str:
        return uci_landscape_page.page(result)

    def charts(self, result: Result, folder: Path) -> None:
        uci_landscape_page.draw(result, folder / "uci-landscape.png")


def powers(limits: tuple[float, float], points: int) -> list[float]:
    """Return evenly spaced powers of ten."""
    return torch.linspace(*limits, points, dtype=torch.float64).tolist()


def landscape(
    laplace: infoform.Laplace,
    structure: Structure,
    x: Tensor,
    y: Tensor,
    settings: LandscapeSettings,
) -> Tensor:  # (points, points): of N, then of τ
    """Return the mean log-likelihood of these data for every pair of a factor of N and a τ."""
    data = powers(settings.data_powers, settings.points)
    precisions = powers(settings.precision_powers, settings.points)
    _check_even(settings)
    assert laplace.num_data is not None
    assert laplace.noise is not None
    found = torch.empty(settings.points, settings.points, dtype=torch.float64)
    for difference in range(-settings.points + 1, settings.points):  # of the positions: one τ / N
        pairs = [(at, at + difference) for at in range(settings.points) if 0 <= at + difference < settings.points]
        ratio = 10 ** (precisions[pairs[0][1]] - data[pairs[0][0]])
        posterior = laplace.posterior(structure=structure, prior_precision=ratio)
        deviations = posterior.sample(settings.samples, generator=torch.Generator().manual_seed(settings.seed))
        for at, other in pairs:
            outputs = sampled_outputs(laplace, deviations, 10 ** (-data[at] / 2), x)
            found[at, other] = mixture_log_likelihood(outputs, y, laplace.noise).mean()
    return found


def sampled_outputs(
    laplace: infoform.Laplace, deviations: dict[str, Tensor], factor: float, x: Tensor
) -> Tensor:  # (M, N, 1)
    """Return the answers of networks with one hidden layer of ReLUs, whose weights deviate by so much."""
    active = x.expand(len(next(iter(deviations.values()))), -1, -1)
    for position, (name, layer) in enumerate(laplace.layers.items()):
        weights = (layer.mean + factor * deviations[name]).mT  # (M, A, G), the bias last
        active = active.relu() if position else active
        active = torch.baddbmm(weights[:, -1:], active, weights[:, :-1])
    return active


def mixture_log_likelihood(outputs: Tensor, y: Tensor, noise: float) -> Tensor:  # (M, N, 1), (N, 1) -> (N,)
    """Return the log density of the targets under the mean of the sampled networks' Gaussians."""
    each = -0.5 * ((outputs - y) / noise).square() - math.log(noise) - 0.5 * math.log(2 * math.pi)
    return torch.logsumexp(each[..., 0], 0) - math.log(len(outputs))


def _check_even(settings: LandscapeSettings) -> None:
    lengths = [high - low for low, high in (settings.data_powers, settings.precision_powers)]
    if not math.isclose(*lengths):
        raise ValueError(f"both axes must span the same number of powers of ten, got {lengths[0]} and {lengths[1]}.")


EXPERIMENT = UciLandscape()
