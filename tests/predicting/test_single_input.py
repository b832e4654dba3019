"""One input without an axis of examples gets a sentence; a prediction prints as one."""

import pytest
import torch
from torch import nn

from infoform import Laplace


def _fitted() -> Laplace:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 3))
    data = [(torch.randn(20, 1, 8, 8), torch.arange(20) % 3)]
    return Laplace(model, "classification").fit(data, progress=False)


def test_a_single_image_is_told() -> None:
    said = r"these have the shape \(1, 8, 8\), which is that of one input; give x.unsqueeze\(0\)"
    with pytest.raises(ValueError, match=said):
        _fitted().predict(torch.randn(1, 8, 8))


def test_a_single_row_is_told() -> None:
    torch.manual_seed(0)
    laplace = Laplace(nn.Linear(3, 2), "classification").fit([(torch.randn(9, 3), torch.arange(9) % 2)], progress=False)
    with pytest.raises(ValueError, match=r"have the shape \(3,\)"):
        laplace.predict(torch.randn(3))


def test_other_errors_stay_as_they_are() -> None:
    with pytest.raises(RuntimeError):
        _fitted().predict(torch.randn(2, 1, 9, 9))


def test_a_prediction_prints_as_a_sentence() -> None:
    prediction = _fitted().predict(torch.randn(5, 1, 8, 8))
    shown = repr(prediction)
    assert shown.startswith("<Prediction of 5 examples (one of 3 classes, linear); mean confidence ")
    assert f"mean entropy {float(prediction.entropy.mean()):.3f} of at most 1.099 nats" in shown
    assert "tensor" not in shown
    regression = Laplace(nn.Linear(3, 2), "regression").fit([(torch.randn(9, 3), torch.randn(9, 2))], progress=False)
    shown = repr(regression.predict(torch.randn(4, 3)))
    assert "2 numbers" in shown
    assert "mean standard deviation" in shown
