"""Test log-likelihood on UCI by linearised Laplace: every structure on the same networks.

    p(y | x) = N(f(x), σ² + ∇ᵀ P⁻¹ ∇)                                           Lee et al. 2020, supplement; MacKay 1992

The mean is the trained network's, so that structures differ in their variance alone. "equal": all have the (N, τ, σ)
that is best for the exact block on held-out data; "tuned": each has its own best. Hyperparameters are chosen on a
network trained on 80 % of a split's training part, by the log-likelihood of the other 20 %; then a network trained on
all of it is tested. `Laplace.tune` does not choose σ on held-out data, so that the grid over (N, τ, σ) is here; since
P(sN, sτ) = s P(N, τ), it needs one posterior for each τ / N.

The training is "short", the paper's as far as it tells, or "long" (likelihood_long.py), as for MC-dropout's
published values; there also weight decay and epochs are chosen on held-out data, by the plain network's likelihood.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import infoform
from infoform.data.uci import RegressionSet, RegressionSplit, published_splits
from infoform.experiments.base import Experiment, Settings
from infoform.experiments.networks.shallow import Training
from infoform.experiments.uci import likelihood_page as uci_likelihood_page
from infoform.experiments.uci.information import digits
from infoform.experiments.uci.networks import SETS, networks, predictions, prepared, variances
from infoform.experiments.uci.structures import EXACT, STRUCTURES
from infoform.posteriors import Structure
from infoform.records.study_result import Result

LARGE = ("kin8nm", "naval", "power", "protein")
TUNED: Mapping[str, Structure] = {
    **{label: STRUCTURES[label] for label in ("diag", "kfac", "efb", "inf 5%", "ours 5%", "ours")},
    "exact": EXACT,
}
EQUAL = {**TUNED, "inf 100%": STRUCTURES["inf 100%"]}


@dataclass(frozen=True)
class LikelihoodSettings(Settings):
    """The grids are factors: of τ at N examples, of both N and τ, and of the residuals' variance."""

    sets: tuple[str, ...] = SETS
    splits: int = 20
    trainings: tuple[str, ...] = ("short",)
    held_out: float = 0.2
    short_epochs: int = 40
    short_batch: int = 32
    long_epochs: int = 4000  # sets of less than 2,000 examples
    long_epochs_large: int = 400
    long_splits_large: int = 5
    long_batch: int = 128
    learning_rate: float = 1e-3
    decays: tuple[float, ...] = (0.0, 3e-3)  # for sets of less than 2,000 examples; the others have none
    prior_precisions: tuple[float, ...] = (0.01, 0.05, 0.2, 1.0, 5.0, 20.0, 100.0)
    validation_points: int = 1000  # at most


@dataclass(frozen=True)
class Choice:
    """Hyperparameters found on held-out data."""

    position: int  # in the settings' prior_precisions
    scale: float  # of N and τ
    variance: float  # σ²


@dataclass(frozen=True)
class Chosen:
    """A split's networks: trained without the held-out data, and on all."""

    held_out: nn.Module
    model: nn.Module
    epochs: int
    decay: float
    variance: float  # of the held-out residuals


class UciLikelihood(Experiment[LikelihoodSettings]):
    """RMSE and test log-likelihood by linearised Laplace."""

    name = "uci-likelihood"
    summary = "RMSE and test log-likelihood by linearised Laplace, on nine UCI sets."
    reproduces = "the figure of test log-likelihoods and the table of RMSE on UCI (supplement)"

    def settings(self, *, quick: bool = False, full: bool = False) -> LikelihoodSettings:
        if quick:
            return LikelihoodSettings(sets=("boston", "yacht"), splits=2)
        return LikelihoodSettings()

    def pieces(self, settings: LikelihoodSettings) -> Sequence[str]:
        return [
            f"{training}/{name}/{split}"
            for training in settings.trainings
            for name in settings.sets
            for split in range(min(settings.splits, trained_splits(training, name, settings)))
        ]

    def run_piece(self, key: str, settings: LikelihoodSettings, *, cache: Path) -> dict[str, Any]:
        training, name, index = key.split("/")
        data = RegressionSet.read(name)
        split, held = prepared(data.split(int(index))), _held_out(data, int(index), settings)
        chosen = chosen_networks(training, name, settings, cache)[int(index)]
        tuning, testing = fitted(chosen.held_out, held), fitted(chosen.model, split)
        testing.noise = tuning.noise  # so that N and τ mean the same for both
        scores = likelihoods(tuning, testing, held, split, chosen.variance, settings.prior_precisions)
        by_evidence = infoform.Laplace(chosen.model, "regression").fit(_data(split), progress=False)
        by_evidence.tune(noise="evidence")
        prediction = by_evidence.predict(split.test_x)
        total = prediction.epistemic[:, 0] + prediction.aleatoric[:, 0]
        residual = residuals(chosen.model, split)
        scores["evidence"] = {"ours": float(log_likelihood(residual, total).mean())}
        unit = math.log(split.target_std)
        return {
            "rmse": float(residual.square().mean().sqrt()) * split.target_std,
            "epochs": chosen.epochs,
            "decay": chosen.decay,
            **{
                kind: {label: digits(value - unit, 5) for label, value in values.items()}
                for kind, values in scores.items()
            },
        }

    def page(self, result: Result) -> str:
        return uci_likelihood_page.page(result)


def likelihoods(
    tuning: infoform.Laplace,
    testing: infoform.Laplace,
    held: RegressionSplit,
    split: RegressionSplit,
    plain_variance: float,
    precisions: Sequence[float],
) -> dict[str, dict[str, float]]:
    """Return the mean test log-likelihood of every method, in standardised units: "equal" and "tuned"."""
    residual, validation = residuals(testing.model, split), residuals(tuning.model, held)
    choices = {}
    for label, structure in TUNED.items():
        spread = torch.stack([epistemic(tuning, held.test_x, structure, one) for one in precisions])
        choices[label] = choose(validation, spread, plain_variance)
    plain = float(log_likelihood(residual, torch.full_like(residual, plain_variance)).mean())

    def score(label: str, choice: Choice) -> float:
        spread = epistemic(testing, split.test_x, EQUAL[label], precisions[choice.position])
        return float(log_likelihood(residual, spread / choice.scale + choice.variance).mean())

    return {
        "equal": {"plain": plain, **{label: score(label, choices["exact"]) for label in EQUAL}},
        "tuned": {label: score(label, choice) for label, choice in choices.items()},
    }


def epistemic(laplace: infoform.Laplace, x: Tensor, structure: Structure, precision: float) -> Tensor:  # (N, A) -> (N,)
    """Return the variance of the predictions at this τ and the fit's N."""
    return variances(laplace.posterior(structure=structure, prior_precision=precision), laplace.model, x)


def choose(residual: Tensor, spread: Tensor, plain_variance: float) -> Choice:  # (N,), (T, N)
    """Return what is best on held-out data, over the grid of τ, of factors of (N, τ), and of σ²."""
    scales = 10.0 ** torch.linspace(-1.5, 1.5, 13, dtype=residual.dtype)
    noises = plain_variance * 10.0 ** torch.linspace(-1.5, 0.1, 17, dtype=residual.dtype)
    scores = torch.stack(
        [
            log_likelihood(residual, (one / scales[:, None])[:, None] + noises[:, None]).mean(-1)
            for one in spread  # (S, Q, N) at a time
        ]
    )
    best = int(scores.argmax())
    position, rest = divmod(best, len(scales) * len(noises))
    scale, noise = divmod(rest, len(noises))
    return Choice(position, float(scales[scale]), float(noises[noise]))


def log_likelihood(residual: Tensor, variance: Tensor) -> Tensor:
    """Return log N(residual; 0, variance)."""
    return -0.5 * (residual.square() / variance + variance.log() + math.log(2 * math.pi))


def best_noise(residual: Tensor) -> tuple[float, float]:
    """Return the variance that fits the residuals best, and their mean log-likelihood with it."""
    variance = residual.square().mean()
    return float(variance), float(log_likelihood(residual, variance).mean())


def residuals(model: nn.Module, split: RegressionSplit) -> Tensor:  # (N,)
    """Return by how much the plain network errs on the test part."""
    return (predictions(model, split.test_x) - split.test_y)[:, 0]


def fitted(model: nn.Module, split: RegressionSplit) -> infoform.Laplace:
    """Return all statistics of one network on its training data."""
    laplace = infoform.Laplace(
        model, "regression", structure="full", fit_options=infoform.FitOptions(statistics="all", fisher="exact")
    )
    return laplace.fit(_data(split), progress=False)


def trained_splits(training: str, name: str, settings: LikelihoodSettings) -> int:
    """Return how many splits have networks: all, but of large sets trained long only the first ones."""
    count = published_splits(name)
    return min(count, settings.long_splits_large) if training == "long" and name in LARGE else count


def chosen_networks(training: str, name: str, settings: LikelihoodSettings, cache: Path) -> list[Chosen]:
    """Return, for every split, the networks with the epochs and decay that the held-out data like best."""
    data = RegressionSet.read(name)
    large, count = name in LARGE, min(data.num_splits, trained_splits(training, name, settings))
    how = Training(settings.short_epochs, settings.short_batch, settings.learning_rate)
    kept: tuple[int, ...] = ()
    decays: Sequence[float] = (0.0,)
    if training == "long":
        epochs = settings.long_epochs_large if large else settings.long_epochs
        how = Training(epochs, settings.long_batch, settings.learning_rate, "float32")
        kept = (epochs // 10, epochs // 3)
        decays = (0.0,) if large else settings.decays
    tried = [decay for decay in decays for _ in range(count)]
    common: dict[str, Any] = {"training": how, "cache": cache, "kept": kept, "splits": count, "seed": settings.seed}
    plain = not any(decays)
    first = networks(name, held_out=settings.held_out, decays=None if plain else tried, **common)
    best = []
    for split in range(count):
        held = _held_out(data, split, settings)
        models = {
            (epochs, decay): stack.network(at * count + split)
            for epochs, stack in first.items()
            for at, decay in enumerate(decays)
        }
        scores = {which: best_noise(residuals(model, held)) for which, model in models.items()}
        which = max(scores, key=lambda one: scores[one][1])
        best.append((models[which], which, scores[which][0]))
    second = networks(name, decays=None if plain else [decay for _, (_, decay), _ in best], **common)
    return [
        Chosen(model, second[epochs].network(split), epochs, decay, variance)
        for split, (model, (epochs, decay), variance) in enumerate(best)
    ]


def _held_out(data: RegressionSet, split: int, settings: LikelihoodSettings) -> RegressionSplit:
    held = prepared(data.split(split), held_out=settings.held_out)
    few = slice(settings.validation_points)
    return RegressionSplit(held.train_x, held.train_y, held.test_x[few], held.test_y[few], held.target_std)


def _data(split: RegressionSplit) -> list[tuple[Tensor, Tensor]]:
    return [(split.train_x, split.train_y)]


EXPERIMENT = UciLikelihood()
