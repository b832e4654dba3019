"""What is logged is what TensorBoard's own reader finds."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.lines import Line2D
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn
from torch.utils.tensorboard import SummaryWriter

import infoform
from infoform.integrations.tensorboard import log_prediction, reliability_figure
from infoform.metrics import evaluate


def _read(folder: Path) -> EventAccumulator:
    return EventAccumulator(str(folder)).Reload()


def _classified() -> tuple[infoform.Prediction, torch.Tensor]:
    torch.manual_seed(0)
    x, y = torch.randn(60, 3), torch.randint(3, (60,))
    laplace = infoform.Laplace(nn.Linear(3, 3), "classification").fit([(x, y)], progress=False)
    return laplace.predict(x), y


def test_a_classifiers_scores_entropies_and_reliability(tmp_path: Path) -> None:
    prediction, y = _classified()
    with SummaryWriter(str(tmp_path)) as writer:
        scores = log_prediction(writer, prediction, y, step=3, prefix="test")
    events = _read(tmp_path)
    assert scores == evaluate(prediction, y)
    assert set(events.Tags()["scalars"]) == {f"test/{name}" for name in scores}
    for name, score in scores.items():
        (event,) = events.Scalars(f"test/{name}")
        assert (event.step, event.value) == (3, pytest.approx(score, rel=1e-6))
    (event,) = events.Histograms("test/entropies_nats")
    assert event.histogram_value.sum == pytest.approx(float(prediction.entropy.sum()), rel=1e-5)
    (event,) = events.Images("test/reliability")
    image = Image.open(io.BytesIO(event.encoded_image_string)).convert("L")
    assert image.size == (event.width, event.height)
    pixels = np.asarray(image)
    assert pixels.min() < 100 < pixels.max()  # lines on a light ground


def test_the_diagram_shows_the_share_of_right_answers() -> None:
    probs = torch.tensor([[0.95, 0.05], [0.97, 0.03], [0.96, 0.04], [0.3, 0.7]])
    axes = reliability_figure(probs, torch.tensor([0, 0, 1, 1])).axes[0]
    shown = axes.get_lines()[1]
    assert isinstance(shown, Line2D)
    torch.testing.assert_close(torch.tensor(shown.get_xydata()).float(), torch.tensor([[0.7, 1.0], [0.96, 2 / 3]]))


def test_a_regressions_scores(tmp_path: Path) -> None:
    x = torch.linspace(-1, 1, 30)[:, None]
    y = x + 0.1 * torch.sin(40 * x)
    laplace = infoform.Laplace(nn.Linear(1, 1), "regression").fit([(x, y)], progress=False)
    with SummaryWriter(str(tmp_path)) as writer:
        scores = log_prediction(writer, laplace.predict(x), y)
    events = _read(tmp_path)
    assert set(events.Tags()["scalars"]) == {f"laplace/{name}" for name in scores}
    (event,) = events.Scalars("laplace/rmse")
    error = (laplace.model(x).detach() - y).square().mean().sqrt()
    assert event.value == pytest.approx(float(error), rel=1e-5)
    assert events.Tags()["images"] == []
