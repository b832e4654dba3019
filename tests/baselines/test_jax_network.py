from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from torch.testing import assert_close

jax = pytest.importorskip("jax", exc_type=ImportError)

from infoform.baselines.jax_network import FUNCTIONS, METHODS, MODULES, translate  # noqa: E402

pytestmark = pytest.mark.starts_jax

ACTIVATIONS = (nn.ReLU, nn.LeakyReLU, nn.ELU, nn.SELU, nn.GELU, nn.SiLU, nn.Softplus, nn.Sigmoid, nn.Tanh, nn.Identity)

NETWORKS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    **{kind.__name__: (nn.Sequential(nn.Linear(3, 4), kind()), (3,)) for kind in ACTIVATIONS},
    "no bias": (nn.Linear(3, 2, bias=False), (3,)),
    "options": (nn.Sequential(nn.LeakyReLU(0.3), nn.ELU(0.7), nn.GELU("tanh"), nn.Softplus(2.0)), (3,)),
    "conv1d": (nn.Sequential(nn.Conv1d(2, 4, 3, groups=2, padding=1), nn.Flatten(), nn.Dropout()), (2, 5)),
    "conv2d": (
        nn.Sequential(nn.Conv2d(2, 4, (3, 2), stride=2, dilation=(1, 2)), nn.BatchNorm2d(4), nn.Dropout2d()),
        (2, 7, 8),
    ),
    "conv2d same": (nn.Conv2d(2, 3, 3, padding="same", bias=False), (2, 5, 4)),
    "conv3d": (nn.Sequential(nn.Conv3d(1, 2, 2), nn.BatchNorm3d(2, affine=False), nn.Flatten(1, 2)), (1, 3, 4, 3)),
    "norms": (nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.LayerNorm(4), nn.LayerNorm(4, bias=False)), (3,)),
}


class Functions(nn.Module):
    """Every function and method of the tables, a shared layer, a parameter of its own, and a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.scale = nn.Linear(4, 4), nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.flatten(x, 1)
        x = self.shared(torch.relu(self.shared(x))) * self.scale + x
        x = torch.add(torch.tanh(x), torch.mul(torch.sigmoid(x), x)) - torch.sin(x) / 3
        x = functional.gelu(x) + functional.relu(x) + functional.silu(x)
        return (x.relu() + x.sigmoid() + x.sin() + x.tanh()).flatten(1)


def randomised(network: nn.Module) -> nn.Module:
    """Return the network in float64 and evaluation mode, with batch statistics that are not 0 and 1."""
    network = network.double().eval()
    generator = torch.Generator().manual_seed(0)
    for value in network.state_dict().values():
        if value.is_floating_point():
            value.copy_(0.2 + torch.rand(value.shape, generator=generator, dtype=value.dtype))
    return network


def check_same(network: nn.Module, shape: tuple[int, ...]) -> None:
    x = torch.randn(3, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    weights = {name: parameter.detach() for name, parameter in network.named_parameters()}
    buffers = {name: buffer for name, buffer in network.named_buffers() if buffer.is_floating_point()}

    def total(weights: dict[str, Tensor]) -> Tensor:
        outputs: Tensor = functional_call(network, weights, (x,))
        return outputs.square().sum()

    with jax.enable_x64(True):
        forward = translate(network)
        state = {name: jax.numpy.asarray(value.numpy()) for name, value in weights.items()}
        fixed = {name: jax.numpy.asarray(value.numpy()) for name, value in buffers.items()}
        inputs = jax.numpy.asarray(x.numpy())

        def squares(state: Any) -> Any:
            outputs = forward({**state, **fixed}, inputs)
            return (outputs**2).sum(), outputs

        gradients, raw = jax.jit(jax.grad(squares, has_aux=True))(state)
        outputs = torch.tensor(raw.tolist(), dtype=torch.float64)
    assert_close(outputs, network(x).detach())
    for name, gradient in torch.func.grad(total)(weights).items():
        assert_close(torch.tensor(gradients[name].tolist(), dtype=torch.float64).reshape(gradient.shape), gradient)


@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_and_gradients_are_those_of_torch(name: str) -> None:
    network, shape = NETWORKS[name]
    check_same(randomised(network), shape)


def test_every_module_of_the_table_is_tested() -> None:
    seen = {type(module) for network, _ in NETWORKS.values() for module in network.modules()}
    assert set(MODULES) <= seen


def test_functions_and_methods_are_those_of_torch() -> None:
    network = randomised(Functions())
    check_same(network, (2, 2))
    graph = torch.fx.symbolic_trace(network).graph
    assert {node.target for node in graph.nodes if node.op == "call_method"} == set(METHODS)
    assert {node.target for node in graph.nodes if node.op == "call_function"} == set(FUNCTIONS)


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


class Calling(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cumsum(x, 1)


class Method(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.cumsum(1)


class TwoInputs(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (nn.Sequential(nn.Linear(2, 2), nn.Softmax(1)), "'1' is a Softmax, which has no rule in JAX"),
        (Branching(), "Branching must have a forward pass that torch.fx can trace"),
        (Calling(), "the network calls cumsum, which has no rule"),
        (Method(), r"the network calls .cumsum\(\), which has no rule"),
        (TwoInputs(), "TwoInputs must take one tensor"),
    ],
)
def test_what_has_no_rule_is_refused_by_name(network: nn.Module, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        translate(network)


@pytest.mark.parametrize(
    ("network", "shape", "message"),
    [
        (nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular"), (2, 1, 4, 4), "padding_mode='zeros'"),
        (nn.BatchNorm1d(2, track_running_stats=False), (3, 2), "track_running_stats=True"),
    ],
)
def test_options_without_a_rule_are_refused(network: nn.Module, shape: tuple[int, ...], message: str) -> None:
    forward = translate(network)
    state = {name: jax.numpy.asarray(value.numpy()) for name, value in network.state_dict().items()}
    with pytest.raises(TypeError, match=message):
        forward(state, jax.numpy.ones(shape))
