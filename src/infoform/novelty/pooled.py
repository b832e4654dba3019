"""The inputs of every layer in one forward pass, pooled to one row an example while the network runs.

A hook pools what a layer is given when the layer is called, and nothing else is held: neither a later operation that
writes over an activation nor the size of the activations matters. The network computes what it would without.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from infoform.network.batches import Batch, token_mask
from infoform.network.hooks import hooked
from infoform.network.last_layer import ObservedCall
from infoform.network.layer import Layer


@dataclass
class PooledInputs:
    """What the layers of a network were given; made by `pooling`."""

    calls: dict[str, list[Tensor]] = field(default_factory=dict)  # (N, D) for each call of a layer
    observed: dict[str, ObservedCall] = field(default_factory=dict)  # the last call of each layer, where asked for
    mask: Tensor | None = None  # (N, T) of the present batch
    observe: bool = False  # whether calls are held for `last_layer`

    def begin(self, batch: Batch) -> None:
        """Forget the batch before, and look for the mask of the next one."""
        self.calls.clear()
        self.observed.clear()
        self.mask = token_mask(batch)

    def rows(self, examples: int) -> dict[str, Tensor]:  # (N, D) by layer
        """Return one row an example for each layer, the mean over its calls; layers whose rows are none are left out.

        Args:
            examples: The number N of examples. A layer that mixes examples with positions on its first axis has
                another number of rows.
        """
        return {
            name: _mean(calls) for name, calls in self.calls.items() if all(one.shape[0] == examples for one in calls)
        }

    def last_layer(self, outputs: Tensor) -> str | None:  # (N, C)
        """Return the layer that these outputs come from; where something follows it, the one that was called last."""
        for name, call in self.observed.items():
            if call.is_output(outputs):
                return name
        return next((name for name in reversed(self.rows(len(outputs))) if name in self.observed), None)


@contextmanager
def pooling(layers: Mapping[str, Layer], *, observe: bool = False) -> Iterator[PooledInputs]:
    """Pool the inputs of these layers for the time of the block; call `begin` before each forward pass.

    Args:
        layers: Layers with a rule, by name.
        observe: Whether the layers' calls are held for `PooledInputs.last_layer`, too.
    """
    pooled = PooledInputs(observe=observe)

    def hook_of(name: str, layer: Layer) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            x = layer.rule.argument(module, args, kwargs).detach()
            with torch.no_grad():  # one example without an axis of examples is no row of a batch
                rows = x.new_zeros(0, 1) if x.dim() < 2 else layer.rule.pooled(module, x, mask=pooled.mask).detach()
            pooled.calls.setdefault(name, []).append(rows)
            if pooled.observe:
                pooled.observed[name] = ObservedCall.of(module, x, output)

        return hook

    with hooked(layers, hook_of):
        yield pooled


def _mean(calls: list[Tensor]) -> Tensor:
    if len(calls) == 1:
        return calls[0]
    return torch.stack(calls).mean(0)
