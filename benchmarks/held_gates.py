"""Networks of ReLUs and max-pooling whose gates are held as the trained weights set them; for mc_or_linear.py.

A gate is what a ReLU or a pooling decides: which unit is on, which pixel wins. The model is an nn.Sequential.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional


@dataclass(frozen=True)
class Trace:
    """What the trained network does with some inputs."""

    inputs: dict[str, Tensor]  # of layers with weights
    gates: dict[str, Tensor]  # of a ReLU: which units are on; of a pooling: where the largest is
    outputs: Tensor  # (N, C)


@dataclass
class Flips:
    """Counts units that are on where they were off, or off where they were on."""

    changed: dict[str, float] = field(default_factory=dict)
    total: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, before: Tensor, after: Tensor) -> None:
        self.changed[name] = self.changed.get(name, 0) + float((before != after).sum())
        self.total[name] = self.total.get(name, 0) + before.numel()

    @property
    def share(self) -> float:
        return sum(self.changed.values()) / sum(self.total.values())


def record(model: nn.Module, x: Tensor) -> Trace:
    inputs, gates = {}, {}
    for name, module in model.named_children():
        if isinstance(module, nn.ReLU):
            gates[name] = x > 0
        elif isinstance(module, nn.MaxPool2d):
            gates[name] = functional.max_pool2d(x, module.kernel_size, return_indices=True)[1]
        elif next(module.parameters(), None) is not None:
            inputs[name] = x
        x = module(x)
    return Trace(inputs, gates, x)


def forward(
    model: nn.Module, weights: Mapping[str, Tensor], trace: Trace, *, start: str, held: bool, flips: Flips | None = None
) -> Tensor:  # -> (N, C)
    """Run the network from layer `start` on, with gates held as they were recorded or as they come out."""
    x, begun = trace.inputs[start], False
    for name, module in model.named_children():
        begun = begun or name == start
        if not begun:
            continue
        if name in trace.inputs:
            own = {key: weights[f"{name}.{key}"] for key, _ in module.named_parameters() if f"{name}.{key}" in weights}
            x = functional_call(module, own, (x,))
        elif held and name in trace.gates:
            x = gated(module, x, trace.gates[name])
        else:
            if flips is not None and isinstance(module, nn.ReLU):
                flips.add(name, trace.gates[name], x > 0)
            x = module(x)
    return x


def tangent(model: nn.Module, steps: Mapping[str, Tensor], trace: Trace) -> Tensor:  # -> (N, C)
    """Return J δ: each layer's δ on its recorded inputs, sent through the layers above with their gates held."""
    moved: Tensor | None = None
    for name, module in model.named_children():
        if name in trace.inputs:
            own = {key: steps[f"{name}.{key}"] for key, _ in module.named_parameters()}
            here = functional_call(module, own, (trace.inputs[name],))
            if moved is not None:
                fixed = {"weight": module.weight, "bias": torch.zeros_like(own["bias"])}
                here = here + functional_call(module, fixed, (moved,))
            moved = here
        elif moved is not None:
            moved = gated(module, moved, trace.gates[name]) if name in trace.gates else module(moved)
    assert moved is not None
    return moved


def gated(module: nn.Module, x: Tensor, gate: Tensor) -> Tensor:
    if isinstance(module, nn.ReLU):
        return x * gate
    return x.flatten(2).gather(2, gate.flatten(2)).reshape(gate.shape)


def displaced(
    model: nn.Module, weights: Mapping[str, Tensor], steps: Mapping[str, Tensor], trace: Trace
) -> dict[str, tuple[float, ...]]:
    """Return |a|², |Δa|², |δ a|² and |δ Δa|², summed, of every layer above the first.

    a are a layer's inputs in the trained network, Δa what the deviations below add to them (gates held), δ the layer's
    own deviation. |δ a|² has the bias, |δ Δa|² has none to have.
    """
    x, found = next(iter(trace.inputs.values())), {}
    for name, module in model.named_children():
        if name in trace.inputs:
            before, change = trace.inputs[name], x - trace.inputs[name]
            own = {key: steps[f"{name}.{key}"] for key, _ in module.named_parameters()}
            unbiased = {**own, "bias": torch.zeros_like(own["bias"])}
            effects = functional_call(module, own, (before,)), functional_call(module, unbiased, (change,))
            found[name] = tuple(float(one.double().square().sum()) for one in (before, change, *effects))
            x = functional_call(module, {key: weights[f"{name}.{key}"] for key in own}, (x,))
        else:
            x = gated(module, x, trace.gates[name]) if name in trace.gates else module(x)
    return dict(list(found.items())[1:])
