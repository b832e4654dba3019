"""Validation data that nothing can be learned from: one sentence each, and the object as it was before."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import infoform


@pytest.fixture
def fitted() -> tuple[infoform.Laplace, Tensor, Tensor]:
    torch.manual_seed(0)
    x, y = torch.randn(60, 4), torch.randint(3, (60,))
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    return infoform.Laplace(model, "classification").fit([(x[:30], y[:30])], progress=False), x[30:], y[30:]


def bad_data(name: str, x: Tensor, y: Tensor) -> list[Any]:
    missing = x.clone()
    missing[3, 1] = torch.nan
    data: dict[str, list[Any]] = {
        "no targets": [x],
        "one class": [(x, torch.full_like(y, 2))],
        "wide": [(torch.randn(30, 5), y)],
        "missing": [(missing, y)],
        "few targets": [(x, y[:-1])],
        "class": [(x, y + 7)],
        "empty": [],
    }
    return data[name]


@pytest.mark.parametrize("kind", ["linear", "mc"])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no targets", "validation loader gave none"),
        ("one class", "more than one class, got class 2 alone"),
        ("wide", r"validation inputs must be such as the network takes.*of shape \(30, 5\)"),
        ("missing", "outputs must be finite on validation data, got others for 1 of 30"),
        ("few targets", "one target for each of its 30 examples"),
        ("class", "class indices must be between 0 and 2"),
        ("empty", "no examples"),
    ],
)
def test_data_are_refused_and_nothing_changes(
    name: str, message: str, kind: str, fitted: tuple[infoform.Laplace, Tensor, Tensor]
) -> None:
    laplace, x, y = fitted
    laplace.temperature, laplace.prior_precision = 1.5, 7.0
    weights = [parameter.clone() for parameter in laplace.model.parameters()]
    with pytest.raises(ValueError, match=message):
        laplace.tune(bad_data(name, x, y), kind=kind, progress=False)
    assert (laplace.temperature, laplace.prior_precision, laplace.trials) == (1.5, 7.0, [])
    assert all(map(torch.equal, weights, laplace.model.parameters()))


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
def test_temperatures_and_precisions_that_are_no_positive_numbers_are_refused(
    value: float, fitted: tuple[infoform.Laplace, Tensor, Tensor]
) -> None:
    laplace, x, y = fitted
    laplace.temperature, laplace.prior_precision = 1.5, 7.0
    with pytest.raises(ValueError, match="temperature must be a positive number"):
        laplace.temperature = value
    if value != 0:  # which is the paper's: no prior at all
        with pytest.raises(ValueError, match="prior_precision must be finite and not negative"):
            laplace.prior_precision = value
    with pytest.raises(ValueError, match="prior_precision must be a range of positive numbers"):
        laplace.tune([(x, y)], prior_precision=(value, 10.0), progress=False)
    with pytest.raises(ValueError, match="standard_errors must be a finite number of at least 0"):
        laplace.tune([(x, y)], standard_errors=-1.0 if value == 0 else value, progress=False)
    assert (laplace.temperature, laplace.prior_precision) == (1.5, 7.0)
