"""Scores of a comparison against the library's own metrics, and the ECE that perfect calibration would have."""

import pytest
import torch
from torch import Tensor

from infoform import metrics
from infoform.comparing.measures import CLASSES, NUMBERS, calibrated_ece
from infoform.tuning.losses import Answers


def classes(examples: int = 60) -> tuple[Answers, Tensor]:
    generator = torch.Generator().manual_seed(0)
    probs = torch.softmax(2 * torch.randn(examples, 4, generator=generator, dtype=torch.float64), 1)
    return Answers(probs), torch.multinomial(probs, 1, generator=generator).squeeze(1)


def numbers(examples: int = 60) -> tuple[Answers, Tensor]:
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(examples, 2, generator=generator, dtype=torch.float64)
    variance = 0.1 + torch.rand(examples, 2, generator=generator, dtype=torch.float64)
    return Answers(mean, variance), mean + torch.randn(examples, 2, generator=generator, dtype=torch.float64)


def score(name: str, answers: Answers, targets: Tensor) -> float:
    measure = {**CLASSES, **NUMBERS}[name]
    return float(measure.score(measure.terms(answers, targets).mean(0, keepdim=True)))


@pytest.mark.parametrize("name", CLASSES)
def test_scores_of_classes_are_those_of_the_metrics(name: str) -> None:
    answers, targets = classes()
    assert score(name, answers, targets) == pytest.approx(getattr(metrics, name)(answers.value, targets), rel=1e-6)


def test_scores_of_numbers_are_those_of_the_metrics() -> None:
    answers, targets = numbers()
    assert answers.variance is not None
    mean, variance = answers.value, answers.variance
    assert score("rmse", answers, targets) == pytest.approx(metrics.rmse(mean, targets))
    assert score("crps", answers, targets) == pytest.approx(metrics.crps_gaussian(mean, variance, targets))
    found = metrics.interval_coverage(mean, variance, targets, level=0.9)
    assert score("coverage", answers, targets) == pytest.approx(found)
    assert score("width", answers, targets) == pytest.approx(float((2 * 1.6448536269514722 * variance.sqrt()).mean()))
    normal = torch.distributions.Normal(mean, variance.sqrt())
    assert score("log_likelihood", answers, targets) == pytest.approx(float(normal.log_prob(targets).mean()))


def test_the_ece_of_perfect_calibration_is_that_of_answers_drawn_from_their_own_probabilities() -> None:
    generator = torch.Generator().manual_seed(1)
    answers, _ = classes(300)
    drawn = [torch.multinomial(answers.value, 1, generator=generator).squeeze(1) for _ in range(300)]
    found = torch.tensor([metrics.ece(answers.value, labels) for labels in drawn])
    error = float(found.std()) * (1 / 300 + 1 / 200) ** 0.5
    assert abs(calibrated_ece(answers) - float(found.mean())) < 3.5 * error
    assert calibrated_ece(classes(3000)[0]) < 0.6 * calibrated_ece(answers)  # it falls with the number of examples
