"""Layer rules: Σ_s g_s a_sᵀ is autograd's gradient, and a module's weights survive the way to a matrix and back."""

import copy
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call, vjp
from torch.nn import functional

from dense import assert_close, one_hot_inputs, output_rows
from infoform.layers import LAYERS, LayerRule, find_rule
from infoform.layers.convolution import convolved
from infoform.layers.norm import ScaleRule
from infoform.layers.scale_function import ScaleFunctionRule

# torch warns that padding="same" may copy its input where kernel lengths are even
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")

CONVOLUTIONS: dict[int, Any] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class OwnLinear(nn.Module):
    """A linear layer of another type than torch's, as timm and GPT-2 have them."""

    def __init__(self, inputs: int, outputs: int, *, transposed: bool = False, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn((inputs, outputs) if transposed else (outputs, inputs)))
        self.bias = nn.Parameter(torch.randn(outputs)) if bias else None
        self.transposed = transposed

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight.T if self.transposed else self.weight, self.bias)


class OwnNorm(nn.Module):
    """A norm as Hugging Face has them, whose scale is one more than its weight."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(size))

    def forward(self, hidden_states: Tensor) -> Tensor:
        return (1 + self.scale) * hidden_states * hidden_states.square().mean(-1, keepdim=True).rsqrt()


CASES: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "linear": (nn.Linear(4, 3), (4,)),
    "linear without bias": (nn.Linear(4, 3, bias=False), (4,)),
    "linear on tokens": (nn.Linear(4, 3), (5, 4)),
    "linear on tokens without bias": (nn.Linear(4, 3, bias=False), (5, 4)),
    "linear on a grid of positions": (nn.Linear(4, 3), (2, 3, 4)),
    "a linear function": (OwnLinear(4, 3), (4,)),
    "a linear function on tokens without bias": (OwnLinear(4, 3, bias=False), (5, 4)),
    "a transposed linear function": (OwnLinear(4, 3, transposed=True), (4,)),
    "a transposed linear function on tokens without bias": (OwnLinear(4, 3, transposed=True, bias=False), (5, 4)),
    "conv1d": (nn.Conv1d(2, 3, 3), (2, 7)),
    "conv2d": (nn.Conv2d(2, 3, 3), (2, 5, 4)),
    "conv3d": (nn.Conv3d(2, 3, 2), (2, 3, 4, 3)),
    "conv without bias": (nn.Conv2d(2, 3, 3, bias=False), (2, 5, 4)),
    "conv of one pixel": (nn.Conv2d(2, 3, 1), (2, 5, 4)),
    "conv with one position": (nn.Conv2d(2, 3, (5, 4)), (2, 5, 4)),
    "conv with an oblong kernel": (nn.Conv2d(2, 3, (2, 3), stride=(2, 1), dilation=(1, 2)), (2, 5, 6)),
    "conv with strides": (nn.Conv2d(2, 3, 3, stride=2), (2, 8, 7)),
    "conv with strides that leave a rest": (nn.Conv1d(2, 3, 2, stride=3), (2, 10)),
    "conv with dilation": (nn.Conv2d(2, 3, 2, dilation=(2, 3)), (2, 5, 6)),
    "conv with groups": (nn.Conv2d(4, 6, 3, groups=2), (4, 4, 5)),
    "conv1d with groups": (nn.Conv1d(4, 6, 3, groups=2, bias=False), (4, 5)),
    "conv3d with groups": (nn.Conv3d(4, 6, 2, groups=2), (4, 3, 3, 2)),
    "depthwise conv": (nn.Conv2d(3, 3, 3, groups=3, padding=1), (3, 4, 5)),
    "depthwise conv with a multiplier": (nn.Conv1d(3, 6, 3, groups=3), (3, 6)),
    "conv with padding": (nn.Conv2d(2, 3, 3, padding=(1, 2)), (2, 5, 4)),
    "conv3d with all at once": (
        nn.Conv3d(4, 2, (2, 3, 2), stride=(1, 2, 1), padding=(1, 0, 2), dilation=(1, 1, 2), groups=2),
        (4, 3, 4, 3),
    ),
    "transposed conv1d": (nn.ConvTranspose1d(2, 3, 3), (2, 5)),
    "transposed conv2d": (nn.ConvTranspose2d(2, 3, (2, 3), stride=2, padding=1, output_padding=(0, 1)), (2, 3, 4)),
    "transposed conv3d": (nn.ConvTranspose3d(2, 3, 2, bias=False), (2, 2, 3, 2)),
    "transposed conv with groups": (nn.ConvTranspose2d(4, 6, 3, groups=2, stride=(1, 2), dilation=2), (4, 3, 2)),
    "transposed conv of more padding than kernel": (nn.ConvTranspose1d(2, 3, 2, stride=3, padding=3), (2, 5)),
    "layer norm": (nn.LayerNorm(4), (4,)),
    "layer norm on tokens without shift": (nn.LayerNorm(4, bias=False), (5, 4)),
    "layer norm of images": (nn.LayerNorm((2, 3)), (5, 2, 3)),
    "RMS norm": (nn.RMSNorm(4), (5, 4)),
    "batch norm": (nn.BatchNorm1d(4), (4,)),
    "batch norm of images": (nn.BatchNorm2d(4), (4, 3, 2)),
    "group norm": (nn.GroupNorm(2, 4), (4, 3, 2)),
    "instance norm": (nn.InstanceNorm1d(4, affine=True), (4, 5)),
    "instance norm with statistics": (nn.InstanceNorm2d(4, affine=True, track_running_stats=True), (4, 5, 2)),
    "a norm of another type": (OwnNorm(4), (5, 4)),
    "a scale of images": (nn.PReLU(4), (4, 3, 2)),
    **{
        f"conv{dims}d, padding={padding!r}, {mode}, kernel {kernel}, dilation {dilation}": (
            CONVOLUTIONS[dims](2, 3, kernel, padding=padding, padding_mode=mode, dilation=dilation),
            (2, *(4, 5, 6)[:dims]),
        )
        for dims in CONVOLUTIONS
        for mode in PADDING_MODES
        for padding, kernel, dilation in [(1, 3, 1), ("same", 3, 1), ("same", 2, 1), ("same", 2, 3), ("valid", 2, 1)]
    },
}


@pytest.mark.parametrize("case", CASES)
def test_the_rule_gives_autograds_gradient_of_every_example(case: str) -> None:
    module, shape = CASES[case]
    torch.manual_seed(0)
    for buffer in module.buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 1.5)
    check_rule(module.double().eval(), shape)


@pytest.mark.parametrize("case", CASES)
def test_weights_survive_the_way_to_a_matrix_and_back(case: str) -> None:
    module, _ = CASES[case]
    rule = rule_of(module)
    matrix = rule.matrix(module)
    assert matrix.shape == rule.shape(module)
    assert not matrix.requires_grad
    own = dict(module.named_parameters())
    restored = rule.parameters(module, matrix)
    assert restored.keys() == own.keys()
    assert all(torch.equal(restored[key], own[key]) for key in own)
    stacked = rule.parameters(module, torch.stack([torch.stack([matrix, 2 * matrix, 3 * matrix])] * 2))
    for key, value in own.items():
        assert stacked[key].shape == (2, 3, *value.shape)
        torch.testing.assert_close(stacked[key][1, 2], 3 * value)


def test_every_rule_of_the_table_is_tested() -> None:
    elsewhere = {LAYERS["attention"], LAYERS["embedding"], LAYERS["embedding bag"]}  # in files of their own
    assert {rule_of(module) for module, _ in CASES.values()} | elsewhere == set(LAYERS.values())


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[nn.Module, tuple[int, ...]]:
    dims = draw(st.integers(1, 3))
    groups = draw(st.integers(1, 3))

    def per_axis(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(dims))

    kernel, dilation = per_axis(1, 3), per_axis(1, 2)
    reach = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    padding: Any = draw(st.sampled_from(["numbers", "same", "valid"]))
    # reflection needs padding smaller than the input, and the kernel must fit into it
    size = tuple(r + 1 + extra for r, extra in zip(reach, per_axis(2, 3), strict=True))
    module = CONVOLUTIONS[dims](
        groups * draw(st.integers(1, 2)),
        groups * draw(st.integers(1, 2)),
        kernel,
        stride=1 if padding == "same" else per_axis(1, 3),
        padding=per_axis(0, 2) if padding == "numbers" else padding,
        dilation=dilation,
        groups=groups,
        bias=draw(st.booleans()),
        padding_mode=draw(st.sampled_from(PADDING_MODES)),
    )
    return module.double(), (module.in_channels, *size)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(convolutions())
def test_the_rule_holds_for_any_convolution(case: tuple[nn.Module, tuple[int, ...]]) -> None:
    check_rule(*case)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(
    ("module", "side"),
    [
        (nn.Conv2d(3, 8, 3, padding=1), 64),
        (nn.Conv2d(16, 16, 5, padding=2, stride=2, bias=False), 12),
        (nn.Conv2d(16, 16, 3, groups=16), 12),
        (nn.Conv2d(16, 32, 1), 12),
    ],
)
def test_single_precision_has_the_same_gradients_without_patches(
    module: nn.Conv2d, side: int, channels_last: bool
) -> None:
    torch.manual_seed(0)
    rule, layout = rule_of(module), torch.channels_last if channels_last else torch.contiguous_format
    x = torch.randn(5, module.in_channels, side, side).contiguous(memory_format=layout)
    g = torch.randn_like(module(x)).contiguous(memory_format=layout)
    found = rule.matrices(module, x, g)
    assert found is not None
    exact = copy.deepcopy(module).double()
    a, b = rule.inputs(exact, x.double()), rule.gradients(exact, g.double())
    expected = torch.einsum("hnsg,hnsa->nhga", b, a).flatten(1, 2)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))


def test_patches_serve_where_they_are_smaller_than_the_gradient_or_the_precision_is_double() -> None:
    module, odd = nn.Conv2d(16, 16, 3), nn.Conv2d(3, 8, 3)
    rule = rule_of(module)
    assert rule.forms_matrices(module, torch.ones(2, 16, 7, 7))
    assert not rule.forms_matrices(module, torch.ones(2, 16, 3, 3))  # 9 positions, 16 outputs
    assert not rule.forms_matrices(module, torch.ones(2, 16, 7, 7).double())
    assert not rule.forms_matrices(odd, torch.ones(2, 8, 7, 7))
    assert rule.matrices(odd, torch.ones(2, 3, 9, 9), torch.ones(2, 8, 7, 7)) is None
    linear = nn.Linear(2, 2)
    assert rule_of(linear).matrices(linear, torch.ones(2, 3, 2), torch.ones(2, 3, 2)) is None


class Doubled(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


class DoubledConv(nn.Conv2d):
    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


class StandardisedConv(nn.Conv2d):
    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return functional.conv2d(input, weight - weight.mean(), bias)


class Squared(OwnNorm):
    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.scale.square() * hidden_states


class Renamed(nn.Linear):
    pass


@pytest.mark.parametrize(
    "module",
    [
        Doubled(4, 3),
        DoubledConv(2, 3, 3),
        StandardisedConv(2, 3, 3),
        nn.Bilinear(2, 3, 4),
        nn.LayerNorm(4, elementwise_affine=False),
        Squared(4),
        nn.ReLU(),
    ],
    ids=lambda module: type(module).__name__,
)
def test_a_module_that_computes_something_else_has_no_rule(module: nn.Module) -> None:
    assert find_rule(module) is None


def test_a_subclass_with_the_same_forward_has_its_parents_rule() -> None:
    assert find_rule(Renamed(4, 3)) is LAYERS["linear"]


def check_rule(module: nn.Module, shape: tuple[int, ...]) -> None:
    """Check inputs, outputs and gradients of a module on two examples of that shape."""
    torch.manual_seed(0)
    rule = rule_of(module)
    x = torch.randn(2, *shape, dtype=torch.float64)
    outputs = module(x).detach()
    cotangent = torch.randn_like(outputs)
    a, g = rule.inputs(module, x), rule.gradients(module, cotangent)  # (H, N, S, A), (H, N, S, G / H)
    if not isinstance(rule, ScaleRule):
        assert_close(a, one_hot_inputs(module, x))
    if not isinstance(rule, ScaleFunctionRule):  # which may put out something even where all weights are zero
        rows = torch.einsum("hga,hnsa->nshg", rule.matrix(module).unflatten(0, (len(a), -1)), a).flatten(2)
        assert_close(rows, output_rows(module, outputs))
    gradients = torch.einsum("hnsg,hnsa->nhga", g, a).flatten(1, 2)
    if isinstance(rule, ScaleRule):
        formed = rule.matrices(module, x, cotangent)
        assert formed is not None
        assert_close(formed, gradients)
    if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        assert_close(convolved(module, x, cotangent), gradients)
    parameters = {name: parameter.detach() for name, parameter in module.named_parameters()}
    for n in range(len(x)):

        def output(values: dict[str, Tensor], one: Tensor = x[n : n + 1]) -> Tensor:
            result = functional_call(module, values, (one,))
            assert isinstance(result, Tensor)
            return result

        (expected,) = vjp(output, parameters)[1](cotangent[n : n + 1])
        cut = rule.parameters(module, gradients[n])
        assert cut.keys() == expected.keys()
        for key, value in expected.items():
            assert_close(cut[key], value)


def rule_of(module: nn.Module) -> LayerRule:
    rule = find_rule(module)
    assert rule is not None
    return rule
