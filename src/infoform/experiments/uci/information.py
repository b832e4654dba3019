"""How far from the exact information matrix? The UCI sets, every structure, errors and what they do to predictions.

The reference is the exact block of each layer, I = E ∇∇ᵀ with the exact Fisher matrix, of the same trained network:

    err = |Î − I| / |I|,    Frobenius norms of the diagonals, or of all but the diagonals      Lee et al. 2020, sec. 5

The second layer's gradients are its inputs alone (one output), so that every Kronecker form is exact there; the table
is of the first layer, and "all" of both layers as one block-diagonal matrix. Predictive variances are compared at
equal (N, τ): the mean over test inputs of |log(v / v_exact)|, with v = ∇ᵀ P⁻¹ ∇.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import infoform
from infoform.data.uci import published_splits
from infoform.experiments.base import Experiment, Settings
from infoform.experiments.networks.shallow import Training
from infoform.experiments.uci import information_page as uci_information_page
from infoform.experiments.uci.networks import SETS, networks, predictions, split_of
from infoform.experiments.uci.structures import STRUCTURES
from infoform.posteriors import Structure, get_structure
from infoform.posteriors.network_posterior import Posterior
from infoform.records.study_result import Result

VARIANCES = ("diag", "kfac", "efb", "inf 100%", "inf 5%", "ours 5%", "ours", "ours 100%")
COMPARED = {  # whose predictive variances are compared; KFAC also with its prior as it is meant (the paper's OKF)
    **{label: STRUCTURES[label] for label in VARIANCES},
    "okf": get_structure("okf-paper"),
}
DEFINITE = ("inf 100%", "inf 5%", "ours 5%", "ours")


@dataclass(frozen=True)
class InformationSettings(Settings):
    """Training as in the paper as far as it tells; 40 epochs and mini-batches of 32 are ours."""

    sets: tuple[str, ...] = SETS
    splits: int = 20  # protein has 5
    epochs: int = 40
    batch_size: int = 32
    learning_rate: float = 1e-3
    prior_precisions: tuple[float, ...] = (0.01, 0.1, 1.0, 10.0, 100.0)
    variance_splits: int = 5  # the first so many splits of a set, for variances
    test_points: int = 500  # at most, for variances


class UciInformation(Experiment[InformationSettings]):
    """Errors of every structure against the exact block."""

    name = "uci-information"
    summary = "How far every structure is from the exact information matrix, on nine UCI sets."
    reproduces = "the table of errors on UCI (section 5), and the table of lower ranks (supplement)"

    def settings(self, *, quick: bool = False, full: bool = False) -> InformationSettings:
        return InformationSettings(sets=("boston", "energy", "yacht"), splits=2) if quick else InformationSettings()

    def pieces(self, settings: InformationSettings) -> Sequence[str]:
        return [f"{name}/{k}" for name in settings.sets for k in range(min(settings.splits, published_splits(name)))]

    def run_piece(self, key: str, settings: InformationSettings, *, cache: Path) -> dict[str, Any]:
        name, index = key.split("/")
        training = Training(settings.epochs, settings.batch_size, settings.learning_rate)
        stacks = networks(name, training=training, cache=cache, seed=settings.seed)
        model, split = stacks[settings.epochs].network(int(index)), split_of(name, int(index))
        data = [(split.train_x, split.train_y)]
        exact = infoform.Laplace(
            model, "regression", structure="full", fit_options=infoform.FitOptions(statistics="all", fisher="exact")
        )
        exact.fit(data, progress=False)
        reference = information(exact.posterior(prior_precision=0.0, num_data=1.0))
        errors = {
            label: both_errors(information(unclipped(exact, structure)), reference)
            for label, structure in STRUCTURES.items()
        }
        sampled = infoform.Laplace(model, "regression").fit(data, progress=False)  # what a user has who says nothing
        default = information(sampled.posterior(prior_precision=0.0, num_data=1.0))
        errors["ours, sampled Fisher"] = both_errors(default, reference)
        residual = predictions(model, split.test_x) - split.test_y
        found: dict[str, Any] = {
            "rmse": float(residual.square().mean().sqrt()) * split.target_std,
            "errors": {label: [digits(value) for value in values] for label, values in errors.items()},
            "lowest": {label: lowest(unclipped(exact, STRUCTURES[label]), reference) for label in DEFINITE},
            "clipped": digits(clipped_share(exact)),
        }
        if int(index) < settings.variance_splits:
            found["ratios"] = ratios(exact, split.test_x[: settings.test_points], settings.prior_precisions)
        return found

    def page(self, result: Result) -> str:
        return uci_information_page.page(result)


def unclipped(laplace: infoform.Laplace, structure: Structure) -> Posterior:
    """Return the likelihood's part alone, with the paper's correction as it is printed, not clipped at 0."""
    printed = structure.with_options(clip=False) if structure.label == "inf-paper" else structure
    return laplace.posterior(structure=printed, prior_precision=0.0, num_data=1.0)


def information(posterior: Posterior) -> dict[str, Tensor]:  # layer -> (G * A, G * A)
    """Return the precision of every layer as a dense matrix."""
    return {name: layer.dense() for name, layer in posterior.layers.items()}


def both_errors(found: Mapping[str, Tensor], reference: Mapping[str, Tensor]) -> list[float]:
    """Return diagonal and off-diagonal error of the first layer, then of all layers."""
    parts = []
    for name, exact in reference.items():
        difference = (found[name] - exact).square()
        squares = exact.square()
        parts.append([_diagonal(difference), _diagonal(squares), _off(difference), _off(squares)])
    total = [sum(values) for values in zip(*parts, strict=True)]
    return [(one[at] / one[at + 1]) ** 0.5 for one in (parts[0], total) for at in (0, 2)]


def lowest(posterior: Posterior, reference: Mapping[str, Tensor]) -> float:
    """Return the least eigenvalue of a layer over its largest, among weights with information (others are fixed)."""
    least = []
    for name, layer in posterior.layers.items():
        informed = reference[name].diagonal() > 0
        values = torch.linalg.eigvalsh(layer.dense()[informed][:, informed])
        least.append(float(values[0] / values[-1]))
    return digits(min(least))


def clipped_share(laplace: infoform.Laplace) -> float:
    """Return for how many of the first layer's weights the printed correction D is negative, at full rank."""
    layers = laplace.posterior(structure="inf-paper", rank=1.0).layers
    first = next(iter(layers.values()))
    return float(first.settings()["clipped"]) / (first.shape[0] * first.shape[1])


def ratios(laplace: infoform.Laplace, x: Tensor, precisions: Sequence[float]) -> dict[str, list[list[float]]]:
    """Return, by method and τ, the means of |log(v / v_exact)| and of log(v / v_exact)."""
    found: dict[str, list[list[float]]] = {label: [] for label in COMPARED}
    for precision in precisions:
        exact = laplace.predict(x, posterior=laplace.posterior(prior_precision=precision)).epistemic
        for label, structure in COMPARED.items():
            posterior = laplace.posterior(structure=structure, prior_precision=precision)
            ratio = (laplace.predict(x, posterior=posterior).epistemic / exact).log()
            found[label].append([digits(float(ratio.abs().mean())), digits(float(ratio.mean()))])
    return found


def digits(value: float, count: int = 4) -> float:
    """Return the value to so many digits: what a table needs, and a small file."""
    return float(f"{value:.{count}g}")


def _diagonal(squares: Tensor) -> float:
    return float(squares.diagonal().sum())


def _off(squares: Tensor) -> float:
    return float(squares.sum() - squares.diagonal().sum())


EXPERIMENT = UciInformation()
