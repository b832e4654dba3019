"""The layer that the network's outputs come from, seen by running the network.

A layer is the last one if the network returns what the layer has put out, unchanged but for its shape: not a number of
it was computed or copied afterwards, so that the outputs lie in the same memory. The gradient of the outputs in what
such a layer puts out is the identity, and nothing has to be sent back through the network.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from glob import escape
from typing import Any

import torch
from torch import Tensor, nn

from infoform.layers.base import is_outer
from infoform.network.attention_setting import own_attention
from infoform.network.batches import Batch, read_outputs, split_batch
from infoform.network.capture import evaluation_mode
from infoform.network.coverage import find_layers, ordinary_layers
from infoform.network.hooks import hooked
from infoform.network.layer import Layer

LAST = "last"  # what `layers=` is given for it
TRACED = 2  # examples that are run to find it; of one alone a model may drop the axis


@dataclass(frozen=True)
class ObservedCall:
    """One call of a layer: what went in and what came out, with the versions that tell whether it was overwritten."""

    module: nn.Module
    inputs: Tensor  # (N, ...)
    output: Tensor  # (N, ...)
    versions: tuple[int, int]

    @classmethod
    def of(cls, module: nn.Module, inputs: Tensor, output: Tensor) -> "ObservedCall":
        inputs, output = inputs.detach(), output.detach()
        return cls(module, inputs, output, (_version(inputs), _version(output)))

    def is_output(self, outputs: Tensor) -> bool:
        """Whether these outputs of the network are, number by number, what the layer has put out."""
        overwritten = (_version(self.inputs), _version(self.output)) != self.versions
        if overwritten:
            return False
        # the numbers of a position may have been moved to the last axis, as for images
        return _same_numbers(outputs, self.output) or (
            outputs.dim() > 2 and _same_numbers(outputs.movedim(-1, 1), self.output)
        )


@dataclass
class LayerWatch:
    """Sees the calls of layers while the network runs; made by `watching`."""

    calls: dict[str, list[ObservedCall]] = field(default_factory=dict)  # by layer
    order: list[str] = field(default_factory=list)  # of the layers' calls

    def last_call(self, outputs: Tensor) -> ObservedCall | None:
        """Return the call that these outputs come from, if its layer was called once."""
        for calls in self.calls.values():
            if len(calls) == 1 and calls[0].is_output(outputs):
                return calls[0]
        return None


@contextmanager
def watching(layers: Mapping[str, Layer]) -> Iterator[LayerWatch]:
    """See all calls of these layers for the time of the block; the network computes what it would without."""
    watch = LayerWatch()

    def hook_of(name: str, layer: Layer) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
            call = ObservedCall.of(module, layer.rule.argument(module, args, kwargs), output)
            watch.calls.setdefault(name, []).append(call)
            watch.order.append(name)

        return hook

    with hooked(layers, hook_of):
        yield watch


def plain_outputs(model: nn.Module, batch: Batch) -> Tensor:
    """Return the model's outputs in evaluation mode, without gradients, and leave it as found.

    What a forward pass writes to buffers goes to copies. `functional_call` would do the same and take a millisecond for
    it, half of a small network's forward pass.
    """
    modules = list(model.modules())
    evaluating = evaluation_mode(model) if any(module.training for module in modules) else nullcontext()
    modes = torch.inference_mode(False), torch.no_grad()
    with evaluating, _copied_buffers(modules), modes[0], modes[1], own_attention(model):
        return read_outputs(model(*batch.args, **batch.kwargs))


@contextmanager
def _copied_buffers(modules: list[nn.Module]) -> Iterator[None]:
    """Put copies in the place of all buffers for the time of the block; a buffer of two modules stays one."""
    found = [(module._buffers, name, one) for module in modules for name, one in module._buffers.items()]
    copies = {id(one): one.detach().clone() for _, _, one in found if one is not None}
    try:
        for buffers, name, one in found:
            if one is not None:
                buffers[name] = copies[id(one)]
        yield
    finally:
        for buffers, name, one in found:
            buffers[name] = one


def trace_last_layer(model: nn.Module, batch: Batch, check_outputs: Callable[[Tensor], Tensor]) -> str:
    """Return the name of the last layer, found by running the first examples of a batch.

    Args:
        model: any model; it is left as found.
        batch: at least one example.
        check_outputs: arranges the model's outputs, (N, C) or (N, *P, C).

    Raises:
        ValueError: if the outputs are not those of a layer with a rule, used once and at one position of an example.
    """
    layers = ordinary_layers(model)
    with watching(layers) as watch:
        outputs = check_outputs(plain_outputs(model, next(split_batch(batch, TRACED))))
        for name, calls in watch.calls.items():
            if calls[-1].is_output(outputs) and _trouble(layers[name], calls, outputs) is None:
                return name
        raise ValueError(
            "layers='last' needs a layer with a rule whose output is the model's output, used once and at one position "
            f"of each example, but {_found_instead(layers, watch, outputs)}."
        )


def select_last_layer(
    model: nn.Module, batch: Batch, check_outputs: Callable[[Tensor], Tensor]
) -> tuple[dict[str, Layer], dict[str, str]]:
    """Return the last layer by name, and why every other parameter is held fixed, as `find_layers` does."""
    return find_layers(model, [escape(trace_last_layer(model, batch, check_outputs))])


def _found_instead(layers: Mapping[str, Layer], watch: LayerWatch, outputs: Tensor) -> str:
    if not watch.calls:
        return "no layer with a rule was called; check the model, or add a rule in infoform.layers"
    by_output = [name for name, calls in watch.calls.items() if calls[-1].is_output(outputs)]
    name = by_output[0] if by_output else watch.order[-1]
    label = f"'{name}' ({type(layers[name].module).__name__})"
    remedy = f"name the layers that are to have a posterior, as in layers=[{name!r}]"
    if name in by_output:
        trouble = _trouble(layers[name], watch.calls[name], outputs)
        return f"the outputs are those of {label}, which is used {trouble}; {remedy}"
    return f"what {label} puts out, the last such layer that was called, is changed before it is returned; {remedy}"


def _trouble(layer: Layer, calls: list[ObservedCall], outputs: Tensor) -> str | None:  # (N, *P, C)
    """Say how a layer is used where that is not once, at one position of the outputs each."""
    if len(calls) > 1:
        return f"{len(calls)} times"
    positions = layer.rule.gradients(calls[0].module, calls[0].output)  # (H, N, S, G / H)
    if is_outer(positions):
        return None
    groups, examples, count, _ = positions.shape
    if groups == 1 and outputs.dim() > 2 and examples * count == outputs[..., 0].numel() and len(outputs) == examples:
        return None
    return f"at {count} positions of each example" if groups == 1 else f"with {groups} groups"


def _version(x: Tensor) -> int:
    return 0 if x.is_inference() else x._version


def _same_numbers(x: Tensor, y: Tensor) -> bool:
    """Whether two tensors are the same memory in the same order; their shapes may differ."""
    if _memory(x) != _memory(y):
        return False
    return (x.is_contiguous() and y.is_contiguous()) or _steps(x) == _steps(y)


def _memory(x: Tensor) -> tuple[object, ...]:
    return x.untyped_storage()._cdata, x.storage_offset(), x.numel(), x.dtype


def _steps(x: Tensor) -> list[tuple[int, int]]:
    return [(size, stride) for size, stride in zip(x.shape, x.stride(), strict=True) if size > 1]
