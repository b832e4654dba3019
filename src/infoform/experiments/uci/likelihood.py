"""Test log-likelihood on UCI by linearised Laplace: every structure on the same networks.

    p(y | x) = N(f(x), σ² + ∇ᵀ P⁻¹ ∇)                                           Lee et al. 2020, supplement; MacKay 1992

The mean is the trained network's, so that structures differ in their variance alone. "equal": all have the (N, τ, σ)
that is best for the exact block on held-out data; "tuned": each has its own best. Hyperparameters are chosen on a
network trained on 80 % of a split's training part, by the log-likelihood of the other 20 % (`Laplace.tune`); then a
network trained on all of it is tested.

The training is "short", the paper's as far as it tells, or "long" (likelihood_long.py), as for MC-dropout's
published values; there also weight decay and epochs are chosen on held-out data, by the plain network's likelihood.
"""

import math
import warnings
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
    """The search is over N, as a factor of the number of examples, and τ; each pair has the σ that suits it best."""

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
    data_factor: tuple[float, float] = (10**-1.5, 10**1.5)
    prior_precision: tuple[float, float] = (3e-4, 3e3)
    trials: int = 98
    validation_points: int = 1000  # at most


@dataclass(frozen=True)
class Choice:
    """Hyperparameters found on held-out data."""

    data_factor: float  # N over the number of fitted examples
    prior_precision: float  # τ
    noise: float  # σ


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
        scores = likelihoods(tuning, testing, held, split, chosen.variance, settings)
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
    settings: LikelihoodSettings,
) -> dict[str, dict[str, float]]:
    """Return the mean test log-likelihood of every method, in standardised units: "equal" and "tuned"."""
    residual = residuals(testing.model, split)
    choices = {label: choose(tuning, held, structure, settings) for label, structure in TUNED.items()}
    plain = float(log_likelihood(residual, torch.full_like(residual, plain_variance)).mean())

    def score(label: str, choice: Choice) -> float:
        spread = epistemic(testing, split, EQUAL[label], choice)
        return float(log_likelihood(residual, spread + choice.noise**2).mean())

    return {
        "equal": {"plain": plain, **{label: score(label, choices["exact"]) for label in EQUAL}},
        "tuned": {label: score(label, choice) for label, choice in choices.items()},
    }


def epistemic(
    laplace: infoform.Laplace, split: RegressionSplit, structure: Structure, choice: Choice
) -> Tensor:  # -> (N,)
    """Return the variance of the predictions of test data with these hyperparameters."""
    laplace.noise, count = choice.noise, choice.data_factor * len(split.train_y)
    posterior = laplace.posterior(structure=structure, prior_precision=choice.prior_precision, num_data=count)
    return variances(posterior, laplace.model, split.test_x)


def choose(
    laplace: infoform.Laplace, held: RegressionSplit, structure: Structure, settings: LikelihoodSettings
) -> Choice:
    """Return the N, τ and σ that are best on held-out data."""
    examples, (low, high) = len(held.train_y), settings.data_factor
    with warnings.catch_warnings():  # where the network alone is as good, the best τ is the largest
        warnings.filterwarnings("ignore", message="the best prior_precision")
        laplace.tune(
            [(held.test_x, held.test_y)],
            structure=structure,
            trials=settings.trials,
            num_data=(low * examples, high * examples),
            prior_precision=settings.prior_precision,
            kind="linear",
            noise="validation",
            standard_errors=0,
            progress=False,
        )
    assert laplace.num_data is not None
    assert laplace.noise is not None
    assert isinstance(laplace.prior_precision, float)
    return Choice(laplace.num_data / examples, laplace.prior_precision, laplace.noise)


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
