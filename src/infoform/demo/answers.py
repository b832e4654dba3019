"""What a user compares: the network alone, with a temperature, with a posterior of its last layer, and of all layers.

A perceptron learns few noisy digits. Scores are of digits that it has not seen, and unknown images are pieces of
photographs. What an answer costs is told in plain forward passes over the same images.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor, nn

from infoform.demo.digits import DigitsSettings, class_probs, load_digits_parts, measure, trained
from infoform.demo.photographs import photograph_pieces
from infoform.laplace import Laplace
from infoform.metrics import ood

HISTOGRAM_BINS = 20
TIMED = 5  # rounds of plain passes and answers


@dataclass(frozen=True)
class AnswerRow:
    """One line of the first table."""

    accuracy: float
    nll: float
    ece: float
    auroc: float  # of the entropy: digits against pieces of photographs
    forwards: float  # what an answer costs, in plain forward passes
    temperature: float
    prior_precision: float | None
    histograms: dict[str, list[int]]  # how many known and unknown images have an entropy between 0 and log(10)


@dataclass(frozen=True)
class AnswersResult:
    """The rows of the first table, and the sentence that `tune` had to say."""

    rows: dict[str, AnswerRow]
    note: str
    test_examples: int


def run_answers(settings: DigitsSettings) -> AnswersResult:
    """Train the perceptron, and score four ways to answer."""
    train, validation, test = load_digits_parts(settings)
    unknown = photograph_pieces(settings.unknown_examples, noise=settings.pixel_noise, seed=settings.seed)
    model = trained(lambda: perceptron(settings.hidden), train, epochs=settings.hidden_epochs, seed=settings.seed)
    last, ours = (Laplace(model, "classification", layers=layers, seed=settings.seed) for layers in ("last", None))
    for laplace in (last, ours):
        laplace.fit(train.batches(), progress=False)
        laplace.tune(validation.batches(), progress=False)
    assert ours.plain_trial is not None
    temperature = ours.plain_trial.temperature
    answers: dict[str, Callable[[Tensor], Tensor]] = {
        "plain": lambda x: model(x).softmax(1),
        "temperature": lambda x: (model(x) / temperature).softmax(1),
        "last layer": lambda x: class_probs(last.predict(x)),
        "ours": lambda x: class_probs(ours.predict(x)),
    }
    found: dict[str, tuple[float, float | dict[str, float] | None]] = {
        "plain": (1.0, None),
        "temperature": (temperature, None),
        "last layer": (last.temperature, last.prior_precision),
        "ours": (ours.temperature, ours.prior_precision),
    }
    costs = passes(model, answers, test.images)
    rows = {}
    for name, answer in answers.items():
        with torch.no_grad():
            probs, strange = answer(test.images), answer(unknown)
        entropies = {"known": entropy(probs), "unknown": entropy(strange)}
        tau = found[name][1]
        rows[name] = AnswerRow(
            *measure(probs, test.labels, settings.calibration_bins),
            auroc=ood(entropies["known"], entropies["unknown"])["auroc"],
            forwards=costs[name],
            temperature=found[name][0],
            prior_precision=tau if isinstance(tau, float) else None,
            histograms={key: histogram(values, probs.shape[1]) for key, values in entropies.items()},
        )
    return AnswersResult(rows, ours.tuning_note, len(test.labels))


def perceptron(hidden: int) -> nn.Module:
    """Return two hidden layers for images of 8×8."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 10)
    )


def passes(model: nn.Module, answers: dict[str, Callable[[Tensor], Tensor]], x: Tensor) -> dict[str, float]:
    """Return what each answer takes in plain forward passes over the same images: medians of rounds, in turns."""
    ratios: dict[str, list[float]] = {name: [] for name in answers}
    with torch.no_grad():
        for number in range(TIMED + 1):
            plain = median(seconds(lambda: model(x)) for _ in range(TIMED))
            for name, answer in answers.items():
                took = seconds(lambda answer=answer: answer(x))  # type: ignore[misc]
                if number:  # the first round prepares what is computed once
                    ratios[name].append(took / plain)
    return {name: 1.0 if name == "plain" else median(values) for name, values in ratios.items()}


def seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def entropy(probs: Tensor) -> Tensor:  # (N, C) -> (N,)
    found: Tensor = -torch.special.xlogy(probs, probs).sum(1)
    return found


def histogram(values: Tensor, classes: int) -> list[int]:  # (N,) -> HISTOGRAM_BINS counts
    return [int(count) for count in torch.histc(values, HISTOGRAM_BINS, 0, math.log(classes))]
