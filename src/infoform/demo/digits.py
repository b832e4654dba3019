"""Digits from few noisy images: an over-confident network, one fit of its curvature, and the scores of every posterior.

τ and a temperature are found on validation data. Predictions are means over networks with sampled weights. Off-diagonal
errors are relative to the exact information matrix of a layer.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from infoform.laplace import Laplace
from infoform.metrics import ece
from infoform.options import FitOptions
from infoform.posteriors import Inf, Structure
from infoform.prediction import Prediction

# row of the table -> structure and prior
POSTERIORS = {name: (name, "isotropic") for name in ("diag", "kfac", "efb-paper", "inf-paper", "inf")}
POSTERIORS["inf, activation prior"] = ("inf", "activation")


@dataclass(frozen=True)
class DigitsSettings:
    """The settings of the digits; they determine all numbers."""

    seed: int = 0
    train_examples: int = 400
    validation_examples: int = 400
    pixel_noise: float = 0.1  # standard deviation; pixels lie between 0 and 1
    epochs: int = 150
    rank: float = 0.05  # eigenpairs kept by the two infs, as a share of a layer's weights
    prior_rank: int = 8  # shared eigenpairs of the activation prior
    samples: int = 50  # networks with sampled weights
    calibration_bins: int = 15
    hidden: int = 256  # units of each of the two hidden layers of the perceptron that answers are compared on
    hidden_epochs: int = 60
    unknown_examples: int = 500  # pieces of photographs


@dataclass(frozen=True)
class Part:
    """Some labelled images."""

    images: Tensor  # (N, 1, 8, 8)
    labels: Tensor  # (N,)

    def batches(self, size: int = 100) -> list[tuple[Tensor, Tensor]]:
        """Return them in batches."""
        return list(zip(self.images.split(size), self.labels.split(size), strict=True))


@dataclass(frozen=True)
class Row:
    """One line of the tables; what only a posterior has is None for the network alone."""

    accuracy: float
    nll: float
    ece: float
    nbytes: int | None = None
    prior_precision: float | None = None
    temperature: float = 1.0
    off_diagonal: dict[str, float] | None = None  # error against the exact block, by layer


@dataclass(frozen=True)
class DigitsResult:
    """The rows of the tables by name, and the test predictions behind them."""

    rows: dict[str, Row]
    probs: dict[str, Tensor]  # (N, C)
    labels: Tensor  # (N,)


def run_digits(settings: DigitsSettings) -> DigitsResult:
    """Train the network, fit the curvature once, and score every posterior."""
    train, validation, test = load_digits_parts(settings)
    model = train_classifier(train, settings)
    laplace = Laplace(
        model,
        "classification",
        structure=Inf(rank=settings.rank),
        fit_options=FitOptions(statistics="all", fisher="exact", input_rank=settings.prior_rank),
        seed=settings.seed,
    )
    laplace.fit(train.batches(), progress=False)
    with torch.no_grad():
        logits = model(test.images)
    probs = {"plain": logits.softmax(1)}
    posteriors: dict[str, dict[str, Any]] = {"plain": {}, "temperature": {}}
    structures = {
        name: laplace.settings.resolve(name) for name, _ in POSTERIORS.values()
    }  # each with the rank asked for
    for name, (chosen, prior) in POSTERIORS.items():
        structure = structures[chosen]
        how: dict[str, Any] = {"kind": "mc", "samples": settings.samples}
        laplace.tune(
            [(validation.images, validation.labels)],
            structure=structure,
            prior=prior,
            progress=False,
            **how,
        )
        if "temperature" not in probs:  # the search has the network alone among its candidates
            assert laplace.plain_trial is not None
            posteriors["temperature"]["temperature"] = laplace.plain_trial.temperature
            probs["temperature"] = (logits / laplace.plain_trial.temperature).softmax(1)
        probs[name] = class_probs(laplace.predict(test.images, **how))
        posteriors[name] = {
            "nbytes": laplace.posterior().nbytes,
            "prior_precision": laplace.prior_precision,
            "temperature": laplace.temperature,
            "off_diagonal": off_diagonal_errors(laplace, structure),
        }
    rows = {
        name: Row(*measure(probs[name], test.labels, settings.calibration_bins), **facts)
        for name, facts in posteriors.items()
    }
    return DigitsResult(rows, {name: probs[name] for name in rows}, test.labels)


def load_digits_parts(settings: DigitsSettings) -> tuple[Part, Part, Part]:
    """Return training, validation and test images, shuffled, with noise on the pixels."""
    from sklearn.datasets import load_digits

    generator = torch.Generator().manual_seed(settings.seed)
    pixels, classes = load_digits(return_X_y=True)
    images = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    images += settings.pixel_noise * torch.randn(images.shape, generator=generator)
    order = torch.randperm(len(images), generator=generator)
    first, second = settings.train_examples, settings.train_examples + settings.validation_examples
    labels = torch.tensor(classes)
    train, validation, test = (Part(images[part], labels[part]) for part in order.tensor_split([first, second]))
    return train, validation, test


def train_classifier(train: Part, settings: DigitsSettings) -> nn.Module:
    """Train a small CNN without any regularisation, long enough to be sure of every training image."""

    def make() -> nn.Module:
        convolutions = OrderedDict(conv1=nn.Conv2d(1, 8, 3, padding=1), relu1=nn.ReLU(), pool1=nn.MaxPool2d(2))
        convolutions.update(conv2=nn.Conv2d(8, 12, 3, padding=1), relu2=nn.ReLU(), pool2=nn.MaxPool2d(2))
        head = OrderedDict(flatten=nn.Flatten(), linear1=nn.Linear(48, 24), relu3=nn.ReLU(), linear2=nn.Linear(24, 10))
        return nn.Sequential(convolutions | head)

    return trained(make, train, epochs=settings.epochs, seed=settings.seed)


def trained(make: Callable[[], nn.Module], train: Part, *, epochs: int, seed: int) -> nn.Module:
    """Make a network and train it, in evaluation mode afterwards; the global seed is left as found."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = make()
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
        for _ in range(epochs):
            for part in torch.randperm(len(train.labels)).split(64):
                optimizer.zero_grad()
                functional.cross_entropy(model(train.images[part]), train.labels[part]).backward()
                optimizer.step()
    return model.eval()


def class_probs(prediction: Prediction) -> Tensor:  # -> (N, C)
    """Return the probabilities, which every prediction of a classifier has."""
    assert prediction.probs is not None
    return prediction.probs


def measure(probs: Tensor, labels: Tensor, bins: int) -> tuple[float, float, float]:
    """Return accuracy, negative log-likelihood and expected calibration error."""
    accuracy = float((probs.argmax(1) == labels).double().mean())
    return accuracy, negative_log_likelihood(probs, labels), ece(probs, labels, bins=bins)


def negative_log_likelihood(probs: Tensor, labels: Tensor) -> float:
    return float(functional.nll_loss(probs.clamp_min(torch.finfo(probs.dtype).tiny).log(), labels))


def off_diagonal_errors(laplace: Laplace, structure: Structure) -> dict[str, float]:
    """Return |off(Î − I)| / |off(I)|, Frobenius, for every layer whose exact block I the fit has kept."""
    information = laplace.posterior(structure=structure, prior="isotropic", prior_precision=0.0, num_data=1.0)
    errors = {}
    for name, layer in information.layers.items():
        block = laplace.curvature[name].block
        if block is not None:
            off = ~torch.eye(len(block), dtype=torch.bool)
            errors[name] = float((layer.dense() - block)[off].norm() / block[off].norm())
    return errors
