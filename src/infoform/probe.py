"""What one batch of inputs shows of a model: how often each layer is used, and what a gradient pass would hold."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from infoform.batches import device_of, read_inputs, read_outputs
from infoform.capture import capturing
from infoform.coverage import Layer, find_layers
from infoform.randomness import isolated


@dataclass(frozen=True)
class Seen:
    """What one forward pass of an example shows."""

    layers: Mapping[str, Layer]  # all that have a rule and were called
    uses: Mapping[str, tuple[int, int]]  # (H, S) by layer
    outputs: int
    examples: int
    activations: int  # bytes that a backward pass holds, about


def probe(model: nn.Module, example: Any) -> Seen:
    """Run the model once, without gradients, and leave it as found."""
    batch = read_inputs(example, device_of(model))
    layers, _ = find_layers(model)
    kept: list[int] = []

    def count(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        before = {x.data_ptr() for x in args if isinstance(x, Tensor)}
        if isinstance(output, Tensor) and output.data_ptr() not in before:  # neither in place nor a view
            kept.append(output.nbytes)

    leaves = [module for module in model.modules() if not any(True for _ in module.children())]
    with capturing(model, layers) as capture, torch.no_grad(), isolated(0):
        handles = [leaf.register_forward_hook(count) for leaf in leaves]
        try:
            outputs = read_outputs(functional_call(model, capture.state, batch.args, batch.kwargs))
        finally:
            for handle in handles:
                handle.remove()
        if outputs.dim() == 0 or len(outputs) == 0:
            raise ValueError(f"example must be a batch of at least one input, got outputs {tuple(outputs.shape)}.")
        uses: dict[str, tuple[int, int]] = {}
        for name, calls in capture.calls.items():
            patches = [layers[name].rule.inputs(call.module, call.inputs[:1]) for call in calls]
            uses[name] = patches[0].shape[0], sum(one.shape[2] for one in patches)
    if not uses:
        raise ValueError("example must be inputs that make the model call a layer with a rule, and it called none.")
    width = outputs.shape[1] if outputs.dim() > 1 else 1
    called = {name: layers[name] for name in uses}
    return Seen(called, uses, width, len(outputs), sum(kept) + 2 * max(kept, default=0))
