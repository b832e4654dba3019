"""Images with channels innermost in memory give the same predictions, and a network that minds keeps its layout."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import infoform
import infoform.network.batches
from infoform.network.capture import Capture
from infoform.network.memory_layout import channels_last_pays
from infoform.predicting.layer_covariances import LayerGradients

X = torch.randn(12, 16, 6, 6, generator=torch.Generator().manual_seed(0))
Head = Callable[[Tensor], Tensor]


class Network(nn.Module):
    """Convolutions of whole blocks of channels, a residual connection, batch norm and a head."""

    def __init__(self, flat: Head) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.norm, self.flat, self.head = nn.BatchNorm2d(16), flat, nn.Linear(32 * 9, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = (x + self.norm(self.first(x))).relu_()
        return self.head(self.flat(self.second(hidden).relu()))  # type: ignore[no-any-return]


def reshaped(x: Tensor) -> Tensor:
    return x.flatten(1)


def viewed(x: Tensor) -> Tensor:
    return x.view(len(x), -1)


def by_address(x: Tensor) -> Tensor:
    return x.as_strided((len(x), x[0].numel()), (x[0].numel(), 1))


def predicted(flat: Head, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    model, x = Network(flat).to(dtype).eval(), X.to(dtype)
    options = infoform.FitOptions(fisher="exact")
    laplace = infoform.Laplace(model, infoform.Regression(noise=1.0), structure="diag", fit_options=options)
    laplace.fit([(x, torch.zeros(len(x), 3, dtype=dtype))], progress=False)
    with laplace._predictor().private() as predictor:
        return predictor.linear(infoform.network.batches.read_inputs(x, torch.device("cpu")))


@pytest.mark.parametrize(("flat", "is_used"), [(reshaped, True), (viewed, False), (by_address, False)])
def test_predictions_are_those_of_the_usual_layout(flat: Head, is_used: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infoform.predicting.checks.AT_ONCE", 0)  # so few examples would keep their layout
    expected = predicted(flat, torch.float64)  # where the layout is never another
    layouts = set()
    forward = Capture.forward

    def noted(self: Capture, batch: infoform.network.batches.Batch) -> Tensor:
        layouts.add((self.channels_last, infoform.network.batches.batch_size(batch) > 2))
        return forward(self, batch)

    monkeypatch.setattr(Capture, "forward", noted)
    found = predicted(flat)
    assert ((True, True) in layouts) == is_used
    for one, other in zip(found, expected, strict=True):
        assert_close(one.double(), other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("positions", [0, 2])
def test_many_positions_have_the_same_jacobians(positions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infoform.predicting.checks.AT_ONCE", 0)
    expected = predicted(reshaped, torch.float64)
    monkeypatch.setattr("infoform.predicting.layer_covariances.MANY_POSITIONS", positions)
    turned = []
    turn = LayerGradients._turned

    def noted(self: LayerGradients, part: slice) -> Iterator[Tensor]:
        turned.append(self.layer)
        return turn(self, part)

    monkeypatch.setattr(LayerGradients, "_turned", noted)
    found = predicted(reshaped)
    assert bool(turned) == (positions == 0)  # the network has fewer positions than inputs
    for one, other in zip(found, expected, strict=True):
        assert_close(one.double(), other, rtol=1e-4, atol=1e-5)


def test_only_whole_blocks_of_channels_pay() -> None:
    blocked, odd, grouped = nn.Conv2d(16, 32, 3), nn.Conv2d(20, 50, 5), nn.Conv2d(32, 32, 3, groups=32)
    cpu = torch.device("cpu")
    assert channels_last_pays({blocked: 3, odd: 2}, cpu, torch.float32)
    assert not channels_last_pays({blocked: 2, odd: 3}, cpu, torch.float32)
    assert not channels_last_pays({blocked: 2, grouped: 3}, cpu, torch.float32)
    assert not channels_last_pays({blocked: 3}, cpu, torch.float64)
