"""All outputs sent back at once bring the gradients that each brings alone; a network that cannot is found out."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing import assert_close

import infoform
from infoform.network.batches import read_inputs
from infoform.network.capture import Call, Capture, capturing
from infoform.network.coverage import find_layers
from infoform.network.many_outputs import can_go_at_once, gradient_of, gradients_at_once, one_vector_each
from models import MODELS


class Doubled(torch.autograd.Function):
    """Twice its input; its backward pass asks for a number, which no tensor of vmap has."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return 2 * gradients[0] if float(gradients[0].sum()) > -1e9 else gradients[0]


class Odd(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(Doubled.apply(self.first(x)).tanh())  # type: ignore[no-untyped-call, no-any-return]


def alone(capture: Capture, outputs: Tensor, vector: Tensor) -> dict[str, list[Call]]:
    found: dict[str, list[Call]] = {}
    capture.backward(outputs, vector, lambda name, calls: found.setdefault(name, []).extend(calls), last=False)
    return found


@pytest.mark.parametrize("case", MODELS)
def test_gradients_at_once_are_those_of_single_passes(case: str) -> None:
    model, batch = MODELS[case].model(), read_inputs(MODELS[case].inputs(), torch.device("cpu"))
    layers, _ = find_layers(model)
    # vmap has no rule for fused attention
    with sdpa_kernel(SDPBackend.MATH), capturing(model, layers) as capture:
        outputs = capture.forward(batch)
        rows = outputs.reshape(len(outputs), -1, outputs.shape[-1])
        vectors = one_vector_each(rows, 0)
        found = gradients_at_once(capture, rows, vectors)
        assert can_go_at_once(capture, outputs)
        for index, vector in enumerate(vectors):
            expected = alone(capture, rows, vector)
            assert list(found) == list(expected)
            for name, calls in found.items():
                for one, other in zip(calls, expected[name], strict=True):
                    assert one.inputs is other.inputs
                    assert_close(gradient_of(one)[:, index], gradient_of(other), rtol=1e-9, atol=1e-12)


def test_a_network_that_vmap_does_not_run_is_sent_back_output_by_output() -> None:
    torch.manual_seed(0)
    model, x = Odd().double(), torch.randn(6, 4).double()
    layers, _ = find_layers(model)
    with capturing(model, layers) as capture:
        assert not can_go_at_once(capture, capture.forward(read_inputs(x, torch.device("cpu"))))
    laplace = infoform.Laplace(model, infoform.Regression(noise=1.0), structure="full")
    laplace.fit([(x, torch.randn(6, 3).double())], progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = laplace.predict(x[:2]).variance
    expected = laplace.predict(x).variance
    assert found is not None
    assert expected is not None
    assert_close(found, expected[:2], rtol=1e-9, atol=0)


def test_wrong_gradients_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3)).double(), torch.randn(2, 4).double()
    layers, _ = find_layers(model)
    right = gradients_at_once

    def wrong(*arguments: Any) -> dict[str, list[Call]]:
        answers = right(*arguments)
        gradient_of(answers["0"][0])[:, 1] *= 1.1
        return answers

    monkeypatch.setattr("infoform.network.many_outputs.gradients_at_once", wrong)
    with capturing(model, layers) as capture:
        assert not can_go_at_once(capture, capture.forward(read_inputs(x, torch.device("cpu"))))
