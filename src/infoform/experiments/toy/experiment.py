"""Predictive bands on the toy regression, of every method beside Hamiltonian Monte Carlo; and what is behind them.

Hyperparameters are set in three ways. "printed": N = 1, a noise of 1 (the loss is the mean squared error) and the τ
that the paper gives, with the information averaged over examples, as the paper defines it; "summed": the same, with its
sum instead. Where τ = 0, weights, and directions, without information are held fixed: precisions are pseudo-inverted.
"equal": the posterior that HMC samples from, N = 100, the data's own noise, and one τ for all, by `Laplace.predict` as
anyone uses it; "linear": with its closed form; "held": with directions held fixed where the data tell less than τ.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

import infoform
from infoform.baselines import BBB, HMC
from infoform.experiments.base import Experiment
from infoform.experiments.toy import page as toy_page
from infoform.experiments.toy.network import ToySettings, exact_fit, toy_data, toy_network, untrained
from infoform.experiments.toy.published import NUM_DATA, PRECISIONS
from infoform.posteriors import Diag, Full, Inf, Kfac, Structure, get_structure
from infoform.posteriors.network_posterior import Posterior
from infoform.records.study_result import Result

METHODS: Mapping[str, Structure] = {
    "Diag": Diag(),
    "KFAC": Kfac(),
    "OKF": get_structure("okf-paper"),
    "EFB": get_structure("efb-paper"),
    "exact block": Full(),
    "INF": get_structure("inf-paper", rank=1.0),
    "INF rank 1": get_structure("inf-paper", rank=1),
    "ours": Inf(rank=1.0),
    "ours rank 1": Inf(rank=1),
}
FIRST = "0"  # name of the first layer


@dataclass(frozen=True)
class BandSettings(ToySettings):
    """What the bands depend on besides data and network; the prior of HMC, warm-up, chains and BBB's steps are ours."""

    weight_samples: int = 100
    prior_precision: float = 0.01  # of HMC, BBB and "equal"
    hmc_samples: int = 50_000  # of all chains
    hmc_chains: int = 10
    hmc_warmup: int = 1000
    hmc_tree_depth: int = 8  # up to 255 gradients a sample
    bbb_steps: int = 20_000
    few_examples: int = 20  # of the smaller information matrix
    held_limits: tuple[float, ...] = (2.0, 10.0, 100.0, 300.0)  # times τ; "held" is the first, all are reported
    grid: tuple[float, float, int] = (-6.0, 6.0, 121)


class Toy(Experiment[BandSettings]):
    """Bands, covariances, and information matrices."""

    name = "toy"
    summary = "Predictive bands of every method on a toy regression, beside Hamiltonian Monte Carlo."
    reproduces = "the figure of the toy regression (section 5), and three of the supplement"

    def settings(self, *, quick: bool = False, full: bool = False) -> BandSettings:
        return BandSettings(hmc_samples=600, hmc_chains=2, hmc_warmup=300, bbb_steps=2000) if quick else BandSettings()

    def pieces(self, settings: BandSettings) -> Sequence[str]:
        return ["laplace", "bbb", *(f"hmc/{chain}" for chain in range(settings.hmc_chains))]

    def run_piece(self, key: str, settings: BandSettings, *, cache: Path) -> dict[str, Any]:
        (x, y), grid = toy_data(settings, settings.seed), _grid(settings)
        if key.startswith("hmc/"):
            return _hmc(untrained(settings), x, y, grid, settings, chain=int(key.removeprefix("hmc/")))
        model = toy_network(settings, settings.seed)
        if key == "laplace":
            return _laplace(model, x, y, grid, settings)
        return _bbb(model, x, y, grid, settings)

    def page(self, result: Result) -> str:
        return toy_page.page(result)

    def charts(self, result: Result, folder: Path) -> None:
        from infoform.experiments.toy import charts  # which needs matplotlib

        charts.draw(result, folder)


def _grid(settings: BandSettings) -> Tensor:  # (M, 1)
    low, high, count = settings.grid
    return torch.linspace(low, high, count, dtype=torch.float64).unsqueeze(1)


def _laplace(model: nn.Module, x: Tensor, y: Tensor, grid: Tensor, settings: BandSettings) -> dict[str, Any]:
    unit, known = exact_fit(model, x, y, noise=1.0), exact_fit(model, x, y, noise=settings.noise)
    few = exact_fit(model, x[: settings.few_examples], y[: settings.few_examples], noise=1.0)
    with torch.no_grad():
        plain = model(grid).flatten()
        error = (model(x) - y).square().mean()
    return {
        "x": x.flatten().tolist(),
        "y": y.flatten().tolist(),
        "grid": grid.flatten().tolist(),
        "plain": plain.tolist(),
        "mse": float(error),
        "printed": {label: _printed(unit, label, NUM_DATA, grid, settings) for label in METHODS},
        "summed": {label: _printed(unit, label, len(x), grid, settings) for label in METHODS},
        "equal": {label: _equal(known, label, grid, settings, kind="mc") for label in METHODS},
        "held": {label: _held(known, label, grid, settings, settings.held_limits[0]) for label in METHODS},
        "limits": {
            f"{limit:g}": {label: _held(known, label, grid, settings, limit) for label in METHODS}
            for limit in settings.held_limits
        },
        "linear": {label: _equal(known, label, grid, settings, kind="linear") for label in METHODS},
        "covariance": {label: _covariance(_printed_posterior(unit, label, NUM_DATA)) for label in ("OKF", "KFAC")},
        "information": {"few": _information(few), "all": _information(unit)},
        "patterns": len((model.get_submodule(FIRST)(x) > 0).T.unique(dim=0)),  # units that differ in where they are on
    }


def _bbb(model: nn.Module, x: Tensor, y: Tensor, grid: Tensor, settings: BandSettings) -> dict[str, Any]:
    bbb = BBB(
        model,
        infoform.Regression(settings.noise),
        prior_precision=settings.prior_precision,
        epochs=settings.bbb_steps,
        learning_rate=settings.learning_rate,
        seed=settings.seed,
    )
    prediction = bbb.fit([(x, y)], progress=False).predict(grid, samples=settings.weight_samples)
    return {**_moments(prediction), "elbo": -bbb.losses[-1]}


def _hmc(model: nn.Module, x: Tensor, y: Tensor, grid: Tensor, settings: BandSettings, *, chain: int) -> dict[str, Any]:
    """Return what one chain finds; it starts at a draw of the prior, so that chains agree only if they mix."""
    hmc = HMC(
        model,
        infoform.Regression(settings.noise),
        prior_precision=settings.prior_precision,
        samples=settings.hmc_samples // settings.hmc_chains,
        warmup=settings.hmc_warmup,
        start="prior",
        max_tree_depth=settings.hmc_tree_depth,
        seed=settings.seed + chain,
    )
    found = hmc.fit([(x, y)], progress=False).diagnostics(grid)
    return {
        **_moments(hmc.predict(grid)),
        "accept_prob": found.accept_prob,
        "divergences": found.divergences,
        "steps": found.steps,
        "effective_samples": found.effective_samples,
    }


def _printed_posterior(unit: infoform.Laplace, label: str, num_data: float) -> Posterior:
    return unit.posterior(structure=METHODS[label], prior_precision=PRECISIONS[label], num_data=num_data)


def _printed(
    unit: infoform.Laplace, label: str, num_data: float, grid: Tensor, settings: BandSettings
) -> dict[str, Any]:
    """Return the band of sampled networks; directions without information are held fixed, and counted."""
    return _sampled(unit, _printed_posterior(unit, label, num_data), grid, settings, least=0.0)


def _held(known: infoform.Laplace, label: str, grid: Tensor, settings: BandSettings, limit: float) -> dict[str, Any]:
    """Return the same at equal hyperparameters, held fixed where P < limit · τ: at 2, the data tell less than τ."""
    posterior = known.posterior(structure=METHODS[label], prior_precision=settings.prior_precision)
    return _sampled(known, posterior, grid, settings, least=limit * settings.prior_precision)


def _sampled(
    laplace: infoform.Laplace, posterior: Posterior, grid: Tensor, settings: BandSettings, *, least: float
) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(settings.seed)
    deviations, fixed, lowest = {}, 0, math.inf
    for name, layer in posterior.layers.items():
        lowest = min(lowest, float(torch.linalg.eigvalsh(layer.dense())[0]))
        root, missing = pseudo_root(layer.dense(), least=least)
        noise = torch.randn(settings.weight_samples, len(root), generator=generator, dtype=root.dtype)
        deviations[name] = (noise @ root.T).reshape(-1, *layer.shape)
        fixed += missing
    weights = laplace.weights(deviations)
    with torch.no_grad():
        outputs = torch.vmap(lambda one: functional_call(laplace.model, one, (grid,)))(weights)
    mean, std = outputs.mean(0).flatten().tolist(), outputs.std(0).flatten().tolist()
    return {"mean": mean, "std": std, "fixed": fixed, "lowest": lowest}


def pseudo_root(precision: Tensor, *, least: float = 0.0) -> tuple[Tensor, int]:  # (P, P) -> (P, P)
    """Return F with F Fᵀ the pseudo-inverse of a precision, and in how many directions that is 0.

    Those are where the precision is no more than rounding, or than `least`.
    """
    values, vectors = torch.linalg.eigh(precision)
    informed = values > max(least, len(values) * torch.finfo(values.dtype).eps * float(values[-1]))
    root = vectors * torch.where(informed, torch.where(informed, values, 1).rsqrt(), 0)
    return root, int((~informed).sum())


def _equal(known: infoform.Laplace, label: str, grid: Tensor, settings: BandSettings, *, kind: str) -> dict[str, Any]:
    posterior = known.posterior(structure=METHODS[label], prior_precision=settings.prior_precision)
    return _moments(known.predict(grid, kind=kind, samples=settings.weight_samples, posterior=posterior))


def _moments(prediction: infoform.Prediction) -> dict[str, Any]:
    """Return mean and standard deviation of the networks' outputs, the noise not included."""
    return {"mean": prediction.value.flatten().tolist(), "std": prediction.epistemic.sqrt().flatten().tolist()}


def _covariance(posterior: Posterior) -> list[list[float]]:
    layer = posterior.layers[FIRST]
    eye = torch.eye(layer.shape[0] * layer.shape[1], dtype=layer.dtype)
    found: list[list[float]] = layer.solve(eye.reshape(-1, *layer.shape)).flatten(1).tolist()
    return found


def _information(laplace: infoform.Laplace) -> Mapping[str, Any]:
    """Return the exact block of the first layer, and how much of it is without information."""
    block = laplace.curvature[FIRST].block
    assert block is not None
    values = torch.linalg.eigvalsh(block)
    floor = len(values) * torch.finfo(values.dtype).eps * values[-1]
    return {
        "block": block.tolist(),
        "fixed_weights": int((block.diagonal() == 0).sum()),
        "fixed_directions": int((values <= floor).sum()),
    }


EXPERIMENT = Toy()
