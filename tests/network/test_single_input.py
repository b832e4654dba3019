"""One input without an axis of examples gets a sentence, wherever it is given; a prediction prints as one."""

from collections.abc import Callable, Iterator
from typing import Any

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


CALLS: dict[str, Callable[[Laplace, torch.Tensor], Any]] = {
    "predict": lambda laplace, x: laplace.predict(x),
    "sampled": lambda laplace, x: laplace.predict(x, kind="mc", samples=3),
    "novelty": lambda laplace, x: laplace.novelty(x),
    "predict_loader": lambda laplace, x: laplace.predict_loader([x], progress=False),
    "tune": lambda laplace, x: laplace.tune([(x, torch.tensor(1))], progress=False),
    "fit": lambda laplace, x: laplace.fit([(x, torch.tensor(1))], progress=False),
    "last layer": lambda laplace, x: Laplace(laplace.model, "classification", layers="last").fit(
        [(x, torch.tensor(1))]
    ),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.filterwarnings("ignore:the captured gradients")
@pytest.mark.parametrize("normalised", [False, True])
def test_a_single_image_is_told_by_every_method(call: Callable[[Laplace, torch.Tensor], Any], normalised: bool) -> None:
    torch.manual_seed(0)
    middle = [nn.BatchNorm2d(2)] if normalised else []
    model = nn.Sequential(nn.Conv2d(3, 2, 3), *middle, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 3)).eval()
    data = [(torch.randn(40, 3, 8, 8), torch.arange(40) % 3)]
    laplace = Laplace(model, "classification").fit(data, progress=False)
    told = (
        r"an axis of examples in front, .* the shape \(3, 8, 8\), .* give x.unsqueeze\(0\), of shape \(1, 3, 8, 8\)\.$"
    )
    with pytest.raises(ValueError, match=told):
        call(laplace, data[0][0][0])
    with pytest.raises((RuntimeError, ValueError)) as other:
        call(laplace, torch.randn(2, 5, 8, 8))  # of five channels: another mistake
    assert "axis" not in str(other.value)


def test_grey_images_without_a_channel_are_told() -> None:
    laplace = _fitted()
    with pytest.raises(
        ValueError, match=r"an axis of channels.*without one; give x.unsqueeze\(1\), of shape \(5, 1, 8"
    ):
        laplace.predict(torch.randn(5, 8, 8))
    with pytest.raises(
        ValueError, match=r"axes of examples and of channels.*give x\[None, None\], of shape \(1, 1, 8, 8"
    ):
        laplace.predict(torch.randn(8, 8))


def test_inputs_in_a_dict_are_told_by_their_name() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, pixels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.layer(pixels * mask)
            return logits

    torch.manual_seed(0)
    pixels, mask = torch.randn(30, 4), torch.ones(30, 4)
    data = [{"pixels": pixels, "mask": mask, "labels": torch.arange(30) % 3}]
    laplace = Laplace(Named(), "classification").fit(data, progress=False)
    with pytest.raises(ValueError, match=r"give pixels.unsqueeze\(0\), of shape \(1, 4\)"):
        laplace.predict({"pixels": pixels[0], "mask": mask[0]})


def test_an_error_of_the_loader_stays_as_it_is() -> None:
    def broken() -> Iterator[torch.Tensor]:
        yield torch.randn(2, 1, 8, 8)
        raise RuntimeError("the disk is gone")

    with pytest.raises(RuntimeError, match="the disk is gone"):
        _fitted().predict_loader(broken(), progress=False)


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
    assert repr(regression.predict(torch.randn(1, 3))).startswith("<Prediction of 1 example (2 numbers")
    assert "mean standard deviation" in shown
