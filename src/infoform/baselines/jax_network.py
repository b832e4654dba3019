"""A torch network as a JAX function of its parameters, for samplers that live in JAX. To add a layer, add a line.

The network is traced by torch.fx in evaluation mode; every module, function and method that it calls must be in one of
the tables below. This file needs the extra `hmc`.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax import Array, lax
from torch import fx, nn
from torch.nn import functional

Parameters = Mapping[str, Array]
ModuleRule = Callable[[Any, Parameters, Array], Array]  # module, its own parameters and buffers, its input


def _linear(module: nn.Linear, own: Parameters, x: Array) -> Array:
    out = x @ own["weight"].T
    return out + own["bias"] if "bias" in own else out


def _convolution(module: Any, own: Parameters, x: Array) -> Array:
    if module.padding_mode != "zeros":
        raise TypeError(f"a convolution must have padding_mode='zeros' here, got {module.padding_mode!r}.")
    padding = module.padding.upper() if isinstance(module.padding, str) else [(one, one) for one in module.padding]
    letters = "NC" + "DHW"[-len(module.kernel_size) :]
    out: Array = lax.conv_general_dilated(
        x,
        own["weight"],
        module.stride,
        padding,
        rhs_dilation=module.dilation,
        feature_group_count=module.groups,
        dimension_numbers=(letters, "OI" + letters[2:], letters),
    )
    return out + own["bias"].reshape(-1, *([1] * len(module.kernel_size))) if "bias" in own else out


def _normalise_batch(module: Any, own: Parameters, x: Array) -> Array:
    if "running_mean" not in own:
        raise TypeError("a batch norm must have running statistics here; use track_running_stats=True.")
    shape = (-1, *([1] * (x.ndim - 2)))
    out = (x - own["running_mean"].reshape(shape)) / jnp.sqrt(own["running_var"].reshape(shape) + module.eps)
    return out * own["weight"].reshape(shape) + own["bias"].reshape(shape) if module.affine else out


def _normalise_layer(module: nn.LayerNorm, own: Parameters, x: Array) -> Array:
    axes = tuple(range(-len(module.normalized_shape), 0))
    out = (x - x.mean(axes, keepdims=True)) / jnp.sqrt(x.var(axes, keepdims=True) + module.eps)
    out = out * own["weight"] if "weight" in own else out
    return out + own["bias"] if "bias" in own else out


def _flatten(x: Array, start_dim: int = 0, end_dim: int = -1) -> Array:
    start, end = start_dim % x.ndim, end_dim % x.ndim
    return x.reshape(*x.shape[:start], -1, *x.shape[end + 1 :])


def _gelu(x: Array, approximate: str = "none") -> Array:
    return jax.nn.gelu(x, approximate=approximate == "tanh")


def _softplus(x: Array, beta: float = 1.0) -> Array:
    return jax.nn.softplus(beta * x) / beta


def _relu(x: Array, inplace: bool = False) -> Array:
    return jax.nn.relu(x)


def _silu(x: Array, inplace: bool = False) -> Array:
    return jax.nn.silu(x)


MODULES: dict[type[nn.Module], ModuleRule] = {
    nn.Linear: _linear,
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
    nn.Conv3d: _convolution,
    nn.BatchNorm1d: _normalise_batch,
    nn.BatchNorm2d: _normalise_batch,
    nn.BatchNorm3d: _normalise_batch,
    nn.LayerNorm: _normalise_layer,
    nn.Flatten: lambda module, own, x: _flatten(x, module.start_dim, module.end_dim),
    nn.Identity: lambda module, own, x: x,
    nn.Dropout: lambda module, own, x: x,  # in evaluation mode
    nn.Dropout2d: lambda module, own, x: x,
    nn.ReLU: lambda module, own, x: _relu(x),
    nn.LeakyReLU: lambda module, own, x: jax.nn.leaky_relu(x, module.negative_slope),
    nn.ELU: lambda module, own, x: jax.nn.elu(x, module.alpha),
    nn.SELU: lambda module, own, x: jax.nn.selu(x),
    nn.GELU: lambda module, own, x: _gelu(x, module.approximate),
    nn.SiLU: lambda module, own, x: _silu(x),
    nn.Softplus: lambda module, own, x: _softplus(x, module.beta),
    nn.Sigmoid: lambda module, own, x: jax.nn.sigmoid(x),
    nn.Tanh: lambda module, own, x: jnp.tanh(x),
}

FUNCTIONS: dict[Any, Callable[..., Any]] = {
    operator.add: operator.add,
    operator.sub: operator.sub,
    operator.mul: operator.mul,
    operator.truediv: operator.truediv,
    torch.add: operator.add,
    torch.mul: operator.mul,
    torch.flatten: _flatten,
    torch.relu: _relu,
    torch.sigmoid: jax.nn.sigmoid,
    torch.sin: jnp.sin,
    torch.tanh: jnp.tanh,
    functional.gelu: _gelu,
    functional.relu: _relu,
    functional.silu: _silu,
}

METHODS: dict[str, Callable[..., Any]] = {
    "flatten": _flatten,
    "relu": _relu,
    "sigmoid": jax.nn.sigmoid,
    "sin": jnp.sin,
    "tanh": jnp.tanh,
}


def translate(network: nn.Module) -> Callable[[Parameters, Array], Array]:
    """Return f(parameters and buffers by name, inputs) -> outputs; raise TypeError where a part has no rule."""
    if type(network) in MODULES:
        return lambda parameters, x: MODULES[type(network)](network, parameters, x)
    try:
        traced = fx.symbolic_trace(network)
    except Exception as error:  # whatever a forward pass does that cannot be traced
        raise TypeError(
            f"{type(network).__name__} must have a forward pass that torch.fx can trace, to be run by JAX, and has not "
            f"({error}); write it without branches on values, or as an nn.Sequential."
        ) from error
    modules = dict(traced.named_modules())
    nodes = list(traced.graph.nodes)
    for node in nodes:
        _check(node, modules)
    if sum(node.op == "placeholder" for node in nodes) != 1:
        raise TypeError(
            f"{type(network).__name__} must take one tensor to be run by JAX; wrap it in a module that does."
        )

    def forward(parameters: Parameters, x: Array) -> Array:
        values: dict[fx.Node, Any] = {}

        def of(given: Any) -> Any:
            return fx.node.map_arg(given, lambda node: values[node])

        for node in nodes:
            if node.op == "placeholder":
                values[node] = x
            elif node.op == "get_attr":
                values[node] = parameters[node.target]
            elif node.op == "call_module":
                own = {
                    name.rpartition(".")[2]: value
                    for name, value in parameters.items()
                    if name.rpartition(".")[0] == node.target
                }
                module = modules[node.target]
                values[node] = MODULES[type(module)](module, own, *of(node.args), **of(node.kwargs))
            elif node.op == "call_function":
                values[node] = FUNCTIONS[node.target](*of(node.args), **of(node.kwargs))
            elif node.op == "call_method":
                values[node] = METHODS[node.target](*of(node.args), **of(node.kwargs))
            else:
                out: Array = of(node.args[0])
        return out

    return forward


def _check(node: fx.Node, modules: Mapping[str, nn.Module]) -> None:
    if node.op == "call_module":
        module = modules[str(node.target)]
        if type(module) not in MODULES:
            known = ", ".join(kind.__name__ for kind in MODULES)
            raise TypeError(f"'{node.target}' is a {type(module).__name__}, which has no rule in JAX; use {known}.")
    elif node.op == "call_function" and node.target not in FUNCTIONS:
        name = getattr(node.target, "__name__", node.target)
        raise TypeError(f"the network calls {name}, which has no rule in JAX; use a module for it, or another sampler.")
    elif node.op == "call_method" and node.target not in METHODS:
        raise TypeError(f"the network calls .{node.target}(), which has no rule in JAX; use a module for it.")
