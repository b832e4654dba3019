"""Digits from few noisy images: an over-confident network, one fit of its curvature, and the scores of every posterior.

Predictions are means over networks with sampled weights. τ is the best value of a grid on validation data. Off-diagonal
errors are relative to the exact information matrix of a layer.
"""

from collections import OrderedDict
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional

from infoform.laplace import Laplace
from infoform.options import FitOptions
from infoform.posteriors import Inf
from infoform.posteriors.network_posterior import Posterior

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
    prior_precisions: tuple[float, ...] = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10000.0)
    activation_precisions: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)  # of that prior
    calibration_bins: int = 15


@dataclass(frozen=True)
class Part:
    """Some labelled images."""

    images: Tensor  # (N, 1, 8, 8)
    labels: Tensor  # (N,)


@dataclass(frozen=True)
class Row:
    """One line of the tables; the last three are None for the plain network."""

    accuracy: float
    nll: float
    ece: float
    nbytes: int | None = None
    prior_precision: float | None = None
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
    laplace.fit(list(zip(train.images.split(100), train.labels.split(100), strict=True)))
    with torch.no_grad():
        probs = {"plain": model(test.images).softmax(1)}
    rows = {"plain": Row(*measure(probs["plain"], test.labels, settings.calibration_bins))}
    for name, (structure, prior) in POSTERIORS.items():
        precisions = settings.activation_precisions if prior == "activation" else settings.prior_precisions
        posteriors = {
            tau: laplace.posterior(structure=structure, prior=prior, prior_precision=tau) for tau in precisions
        }
        losses = {
            tau: negative_log_likelihood(predict(laplace, posterior, validation, settings), validation.labels)
            for tau, posterior in posteriors.items()
        }
        best = min(losses, key=lambda tau: losses[tau])
        probs[name] = predict(laplace, posteriors[best], test, settings)
        measured = measure(probs[name], test.labels, settings.calibration_bins)
        rows[name] = Row(*measured, posteriors[best].nbytes, best, off_diagonal_errors(laplace, structure))
    return DigitsResult(rows, probs, test.labels)


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
    """Train without any regularisation, long enough to be sure of every training image."""
    with torch.random.fork_rng():
        torch.manual_seed(settings.seed)
        convolutions = OrderedDict(conv1=nn.Conv2d(1, 8, 3, padding=1), relu1=nn.ReLU(), pool1=nn.MaxPool2d(2))
        convolutions.update(conv2=nn.Conv2d(8, 12, 3, padding=1), relu2=nn.ReLU(), pool2=nn.MaxPool2d(2))
        head = OrderedDict(flatten=nn.Flatten(), linear1=nn.Linear(48, 24), relu3=nn.ReLU(), linear2=nn.Linear(24, 10))
        model = nn.Sequential(convolutions | head)
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
        for _ in range(settings.epochs):
            for part in torch.randperm(len(train.labels)).split(64):
                optimizer.zero_grad()
                functional.cross_entropy(model(train.images[part]), train.labels[part]).backward()
                optimizer.step()
    return model.eval()


def predict(laplace: Laplace, posterior: Posterior, part: Part, settings: DigitsSettings) -> Tensor:  # -> (N, C)
    """Return the mean class probabilities of networks with sampled weights."""
    generator = torch.Generator().manual_seed(settings.seed)
    weights = laplace.weights(posterior.sample(settings.samples, generator=generator))

    def forward(sampled: dict[str, Tensor]) -> Tensor:
        logits: Tensor = functional_call(laplace.model, sampled, (part.images,))
        return logits.softmax(1)

    with torch.no_grad():
        probs: Tensor = vmap(forward, chunk_size=10)(weights)  # (M, N, C)
    return probs.mean(0)


def measure(probs: Tensor, labels: Tensor, bins: int) -> tuple[float, float, float]:
    """Return accuracy, negative log-likelihood and expected calibration error."""
    from torchmetrics.classification import MulticlassCalibrationError

    accuracy = float((probs.argmax(1) == labels).double().mean())
    calibration = MulticlassCalibrationError(num_classes=probs.shape[1], n_bins=bins)
    return accuracy, negative_log_likelihood(probs, labels), float(calibration(probs, labels))


def negative_log_likelihood(probs: Tensor, labels: Tensor) -> float:
    return float(functional.nll_loss(probs.clamp_min(torch.finfo(probs.dtype).tiny).log(), labels))


def off_diagonal_errors(laplace: Laplace, structure: str) -> dict[str, float]:
    """Return |off(Î − I)| / |off(I)|, Frobenius, for every layer whose exact block I the fit has kept."""
    information = laplace.posterior(structure=structure, prior="isotropic", prior_precision=0.0, num_data=1.0)
    errors = {}
    for name, layer in information.layers.items():
        block = laplace.curvature[name].block
        if block is not None:
            off = ~torch.eye(len(block), dtype=torch.bool)
            errors[name] = float((layer.dense() - block)[off].norm() / block[off].norm())
    return errors
