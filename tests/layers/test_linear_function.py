"""Modules that compute what a linear layer does, whatever their type, are exact; all others are left alone."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.pytorch_utils import Conv1D

import infoform
from dense import assert_close
from infoform.layers import find_rule


class OwnLinear(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return functional.linear(input, self.weight, self.bias)


class Bare(nn.Module):
    """As PyTorch Geometric's: no nn.Linear, but its parameters."""

    def __init__(self, columns: int, rows: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, columns))
        self.bias = None

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.t()


class Doubled(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


class Clipped(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.clamp(-5, 5))


CONV1D: Any = Conv1D  # which has no types


@pytest.mark.parametrize(
    "layer", [OwnLinear(4, 3), OwnLinear(4, 4, bias=False), Bare(4, 3), CONV1D(3, 4), CONV1D(4, 4)]
)
@pytest.mark.parametrize("shape", [(5, 4), (5, 2, 4)])
def test_what_computes_a_linear_layer_has_its_gradients_and_its_weights(
    layer: nn.Module, shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    layer = layer.double()
    nn.init.normal_(layer.weight)  # type: ignore[arg-type]
    rule = find_rule(layer)
    assert rule is not None
    x = torch.randn(shape).double()
    output = layer(x)
    g = torch.randn_like(output)
    formed = torch.einsum("hnsg,hnsa->nga", rule.gradients(layer, g), rule.inputs(layer, x))
    assert formed.shape[1:] == rule.shape(layer)
    own = rule.parameters(layer, formed.sum(0))
    parameters = dict(layer.named_parameters())
    assert own.keys() == parameters.keys() == rule.parameter_names(layer)
    for name, expected in zip(parameters, torch.autograd.grad(output, list(parameters.values()), g), strict=True):
        assert_close(own[name], expected)
    for name, value in rule.parameters(layer, rule.matrix(layer)).items():
        assert torch.equal(value, parameters[name])


@pytest.mark.parametrize("layer", [Doubled(4, 3), Clipped(4, 3), nn.Bilinear(2, 2, 2)])
def test_what_computes_something_else_has_no_rule(layer: nn.Module) -> None:
    assert find_rule(layer) is None


def test_such_layers_are_sampled_saved_and_predicted_as_linear_ones() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(CONV1D(6, 4), nn.Tanh(), OwnLinear(6, 3)).double()
    nn.init.normal_(model[0].weight)  # type: ignore[arg-type]
    plain = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    state = model.state_dict()
    plain.load_state_dict({**state, "0.weight": state["0.weight"].T})
    x = torch.randn(6, 4).double()
    found, expected = (infoform.Laplace(one, "classification").fit([x], progress=False) for one in (model, plain))
    for kind in ("linear", "mc", "linear-mc"):
        probs = expected.predict(x, kind=kind).probs
        assert probs is not None
        assert_close(found.predict(x, kind=kind).probs, probs)
    assert_close(found.sample(1)["0.weight"].mT, expected.sample(1)["0.weight"])
