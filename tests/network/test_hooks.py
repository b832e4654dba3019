"""Hooks see outputs of layers before the user's own hooks do, and are gone after the block, also after an exception."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from infoform import Laplace
from infoform.network.hooks import hooked
from infoform.network.layer import Layer


def test_hooks_come_first_and_are_taken_off() -> None:
    first = nn.Linear(3, 4)
    model = nn.Sequential(first, nn.Tanh(), nn.Linear(4, 2))
    x = torch.randn(5, 3)
    layers = Laplace(model, "classification").fit([(x, torch.arange(5) % 2)], progress=False).layers
    own = first.register_forward_hook(lambda _module, _args, output: 2 * output)
    seen: dict[str, Tensor] = {}

    def hook_of(name: str, layer: Layer) -> Any:
        def hook(module: nn.Module, args: Any, kwargs: Any, output: Tensor) -> None:
            assert module in layer.modules
            seen[name] = output

        return hook

    with pytest.raises(RuntimeError), hooked(layers, hook_of):
        model(x[:, :2])  # of the wrong size
    with hooked(layers, hook_of):
        model(x)
    assert torch.equal(seen["0"], nn.functional.linear(x, first.weight, first.bias))
    assert list(first._forward_hooks) == [own.id]
    assert not model[2]._forward_hooks
