"""What one batch of inputs shows of a model: how often each layer is used, and what a gradient pass would hold."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef

from infoform.common.randomness import isolated
from infoform.network.batches import Batch, device_of, read_inputs
from infoform.network.capture import Call, capturing
from infoform.network.coverage import find_layers
from infoform.network.layer import Layer
from infoform.network.selection import ALL


@dataclass(frozen=True)
class ProbeResult:
    """What one forward pass of an example shows."""

    layers: Mapping[str, Layer]  # all that have a rule and were called
    uses: Mapping[str, tuple[int, int]]  # (H, S) by layer, in the order of their first calls
    outputs: int
    examples: int
    model_bytes: int  # of parameters and buffers
    activations: Mapping[str, int]  # by layer: bytes that a pass which goes back to it holds, about
    pooled: Mapping[str, int]  # by layer: columns of its pooled inputs
    shape: tuple[int, ...] = ()  # of the network's outputs


def probe(model: nn.Module, example: Any, *, also: Iterable[str] = ()) -> ProbeResult:
    """Run the model once on inputs, without keeping what a gradient pass would, and leave it as found.

    Args:
        model: any model.
        example: a batch of inputs.
        also: names of layers that are looked at besides those whose rule counts by default.
    """
    return probe_batch(model, read_inputs(example, device_of(model)), also=also)


def probe_batch(
    model: nn.Module, batch: Batch, *, also: Iterable[str] = (), device: torch.device | None = None
) -> ProbeResult:
    """As `probe`; the batch is on the device that the model is to run on, its own where none is given."""
    also = set(also)
    every, _ = find_layers(model, ALL, frozen=True)
    layers = {name: layer for name, layer in every.items() if layer.rule.by_default or name in also}
    names = {module: name for name, layer in layers.items() for module in layer.modules}
    with capturing(model, layers, device=device) as capture, isolated(0):
        saved = _Saved([*capture.state.values(), *batch.tensors()])

        def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            saved.reach(names[module], layers[names[module]].rule.argument(module, args, kwargs))

        handles = [module.register_forward_hook(note, with_kwargs=True) for module in names]
        try:
            with saved_tensors_hooks(saved.add, saved.give_back):
                outputs = capture.forward(batch)
        finally:
            for handle in handles:
                handle.remove()
        if outputs.dim() == 0 or len(outputs) == 0:
            raise ValueError(f"example must be a batch of at least one input, got outputs {tuple(outputs.shape)}.")
        uses: dict[str, tuple[int, int]] = {}
        pooled: dict[str, int] = {}
        for name, calls in capture.calls.items():
            if layers[name].rule.by_default:
                pooled[name] = layers[name].rule.pooled(calls[0].module, calls[0].inputs[:1]).shape[1]
            uses[name] = _uses(layers[name], calls)
    if not uses:
        raise ValueError("example must be inputs that make the model call a layer with a rule, and it called none.")
    called = {name: layers[name] for name in uses}
    held = {name: saved.since(name) for name in uses}
    width = outputs.shape[1] if outputs.dim() > 1 else 1
    return ProbeResult(called, uses, width, len(outputs), capture.nbytes, held, pooled, tuple(outputs.shape))


def _uses(layer: Layer, calls: Sequence[Call]) -> tuple[int, int]:
    """Return (H, S) of the first example."""
    rule = layer.rule
    if rule.forms:
        return 1, 1
    if rule.sparse:
        return 1, sum(rule.row_indices(call.module, call.inputs[:1]).shape[1] for call in calls)
    patches = [rule.inputs(call.module, call.inputs[:1]) for call in calls]
    return patches[0].shape[0], sum(one.shape[2] for one in patches)


class _Saved:
    """Counts what autograd, and the taps of layers, would hold, each storage once, in the order of the forward pass."""

    def __init__(self, given: Iterable[Tensor]) -> None:
        # weak references: what is counted may be freed, but no other may take its address
        self._given = {one.cdata: one for one in (StorageWeakRef(x.untyped_storage()) for x in given)}
        self._known = dict(self._given)
        self._sizes: list[int] = []
        self._starts: dict[str, tuple[int, int]] = {}  # how many were there before, and bytes of the layer's inputs

    def add(self, x: Tensor) -> None:
        storage = StorageWeakRef(x.untyped_storage())
        if storage.cdata not in self._known:
            self._known[storage.cdata] = storage
            self._sizes.append(x.untyped_storage().nbytes())

    def give_back(self, _: None) -> Tensor:
        raise AssertionError("a probe has no backward pass")

    def reach(self, name: str, inputs: Tensor) -> None:
        before, storage = len(self._sizes), inputs.untyped_storage()
        self.add(inputs)
        counts = StorageWeakRef(storage).cdata not in self._given
        self._starts.setdefault(name, (before, storage.nbytes() if counts else 0))

    def since(self, name: str) -> int:
        """Return the bytes that are held from this layer on, and two of the largest for the gradients on their way."""
        if name not in self._starts:  # a single parameter, which no call tells of
            return sum(self._sizes)
        start, inputs = self._starts[name]
        later = [*self._sizes[start:], inputs]
        return sum(later) + 2 * max(later)
