"""A layer's inputs and output gradients from one forward and backward pass, the model left as found.

Parameters enter detached, so that backpropagation computes gradients of activations only, never of weights.
Buffers enter as copies; training flags and hooks are put back on leaving, also after an exception.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.func import functional_call

from infoform.layers import LayerRule
from infoform.layers.attention import all_projections, seen_projections
from infoform.network.attention_setting import unfused_encoder
from infoform.network.batch_axis import FIRST, SHARED, arranged
from infoform.network.batches import Batch, batch_size, is_divisible, read_outputs
from infoform.network.expanded import ExpandedNetwork
from infoform.network.frozen_norm import norm_hooks
from infoform.network.hooks import hooked, hooked_modules
from infoform.network.layer import Layer
from infoform.network.memory_layout import state_with_channels_last, with_channels_last
from infoform.network.one_example_norm import repaired_batch_norm


@dataclass(frozen=True)
class Call:
    """One call of a layer: the module called, what went in, and, after a backward pass, what came back."""

    module: nn.Module
    inputs: Tensor  # (N, ...)
    version: int  # of the inputs: tells whether they were overwritten later
    gradients: Tensor | None = None  # (N, ...)
    put_out: int = 0  # numbers

    @property
    def overwritten(self) -> bool:
        """Whether the inputs were written over after the call."""
        return self.inputs._version != self.version

    @property
    def dtype(self) -> torch.dtype:
        """Return the type that the layer computes in: its inputs', unless they are whole numbers (words, say)."""
        if self.inputs.is_floating_point() or self.gradients is None:
            return self.inputs.dtype
        return self.gradients.dtype


OVERWRITTEN = "its inputs are overwritten in place later in the forward pass, so that its gradients cannot be had"

TRANSFORMED = "the model runs it inside torch.vmap or another function of torch.func, where its examples cannot be seen"

# takes a layer's name and its calls of one backward pass
GradientSink = Callable[[str, list[Call]], None]


@dataclass
class Capture:
    """Runs the model on one batch at a time with its layers tapped; made by `capturing`."""

    model: nn.Module
    state: dict[str, Tensor]
    autocast: torch.dtype | None = None  # of the forward pass, where a narrower one is asked for
    axes: dict[str, str] = field(default_factory=dict)  # where the examples are, of layers that have them not first
    channels_last: bool = False  # whether images lie in memory so
    calls: dict[str, list[Call]] = field(default_factory=dict)
    odd: dict[str, str] = field(default_factory=dict)  # layers whose examples have no gradients of their own, and why
    # calls whose examples cannot be told apart, by layer: odd if a gradient comes back, as to DoRA's norms none does
    unplaced: dict[str, dict[int, str]] = field(default_factory=dict)
    without_gradient: set[str] = field(default_factory=set)  # layers that ran under torch.no_grad()
    output_bytes: list[int] = field(default_factory=list)  # put out by each call of a layer
    arranges: bool = True  # whether calls get their examples first; a self-check wants them as they are
    taps: bool = True  # whether calls of layers are noted
    expands: Mapping[str, Layer] = field(default_factory=dict)  # single parameters, of which no call tells
    expanding: Collection[str] | None = None  # those of them that are wanted now; None for all
    _batch: Batch | None = None  # the present one, where there are such
    _expanded: ExpandedNetwork | None = None
    _outputs: Tensor | None = None  # of that batch
    _anchor: Tensor | None = None
    _gradients: dict[str, dict[int, Tensor]] = field(default_factory=dict)
    _sink: GradientSink | None = None
    _examples: int = 0  # of the present batch
    _size: int = 0  # of the present batch, as its arguments tell before its outputs do
    _last: bool = True  # whether a batch's calls are needed no more when their gradients have arrived

    @property
    def device(self) -> torch.device:
        return next(iter(self.state.values())).device

    @property
    def nbytes(self) -> int:
        """Return the bytes of the model's parameters and buffers."""
        return sum(one.nbytes for one in self.state.values())

    def forward(self, batch: Batch) -> Tensor:
        """Return the model's outputs for the batch, ready for `backward`."""
        self.calls.clear()
        self.odd.clear()
        self.unplaced.clear()
        self.output_bytes.clear()
        self._anchor = next(iter(self.state.values())).new_zeros((), requires_grad=True)
        batch = with_channels_last(batch) if self.channels_last else batch
        self._size = batch_size(batch)
        grad, normed = torch.enable_grad(), repaired_batch_norm(self.model, batch)
        with grad, self._casting(), normed, unfused_encoder(self.model):
            outputs = read_outputs(functional_call(self.model, self.state, batch.args, batch.kwargs))
        self._examples = len(outputs) if outputs.dim() else 0
        if self.arranges and self._examples:
            for name in list(self.calls):
                self._arrange(name)
        self._expanded, self._batch = None, batch if self.expands and self.taps else None
        self._outputs = None if self._batch is None else outputs.detach()
        if self._batch is not None:
            self._note_expanded(batch, outputs)
        return outputs if self.autocast is None else outputs.float()

    def _note_expanded(self, batch: Batch, outputs: Tensor) -> None:
        """Note single parameters as called; as odd where examples cannot be run with parameters of their own."""
        for name, layer in self.expands.items():
            nothing = outputs.new_empty(self._examples, 0, requires_grad=False)
            self.calls[name] = [Call(layer.module, nothing, nothing._version)]
            if not is_divisible(batch) or batch_size(batch) != self._examples:
                self.odd[name] = "the batch cannot be cut into examples, which a single parameter needs"

    def _send_back_expanded(self, vector: Tensor, sink: GradientSink, *, last: bool) -> None:
        """Send a vector back to single parameters, through a network with one copy of them for each example."""
        assert self._batch is not None
        wanted = self.expands if self.expanding is None else self.expanding
        layers = {name: layer for name, layer in self.expands.items() if name in wanted and name not in self.odd}
        layers = {name: layer for name, layer in layers.items() if name in self.calls}
        if not layers:
            return
        if self._expanded is None:
            names = [one for layer in layers.values() for one in layer.parameters.values()]
            self.taps = False
            try:
                network = (self.model, self.state, names, self._batch, self._casting)
                self._expanded = ExpandedNetwork.run(*network)
            finally:
                self.taps = True
            if not self._expanded.agrees_with(self._outputs):
                why = "its examples have other outputs one by one, so that none has a gradient of its own"
                if self.arranges:
                    raise ValueError(f"layer '{next(iter(layers))}' cannot be fitted with this batch: {why}.")
                self.odd |= dict.fromkeys(layers, why)
                return
        gradients = self._expanded.gradients(vector, last=last)
        for name, layer in layers.items():
            (call,), (parameter,) = self.calls[name], layer.parameters.values()
            if last:
                del self.calls[name]
            if parameter in gradients:
                sink(name, [replace(call, gradients=gradients[parameter])])
        if last:
            self._expanded = None

    def _casting(self) -> AbstractContextManager[None]:
        if self.autocast is None:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.autocast)

    def backward(self, outputs: Tensor, vector: Tensor, sink: GradientSink, *, last: bool = True) -> None:
        """Send `vector` back through the network; `sink` gets each layer's calls as their gradients arrive."""
        assert self._anchor is not None
        self._gradients, self._sink, self._last = {}, sink, last
        try:
            if outputs.requires_grad:
                torch.autograd.grad(outputs, self._anchor, vector, retain_graph=not last, allow_unused=True)
            for name in list(self._gradients):  # layers some of whose calls do not reach the outputs
                self._flush(name)
            if self._batch is not None:
                self._send_back_expanded(vector, sink, last=last)
        finally:
            self._gradients, self._sink = {}, None

    def _arrange(self, name: str) -> None:
        """Put the examples first in what a layer got in; note the layer as odd where that cannot be done."""
        axis, calls = self.axes.get(name, FIRST), self.calls[name]
        troubles: dict[int, str] = {}
        for index, call in enumerate(calls):
            inputs = arranged(call.inputs, axis, self._examples)
            if inputs is None:
                troubles[index] = (
                    f"its inputs have the shape {tuple(call.inputs.shape)} in a batch of {self._examples}, so that "
                    "the examples cannot be told apart"
                )
            elif axis != FIRST and call.overwritten:
                troubles[index] = OVERWRITTEN
            elif axis != FIRST:
                calls[index] = replace(call, inputs=inputs, version=inputs._version)
        if len(troubles) == len(calls):
            self.odd[name] = troubles[0]
        elif troubles:
            self.unplaced[name] = troubles

    def _tap(self, name: str, module: nn.Module, inputs: Tensor, output: Tensor) -> Tensor:
        if not self.taps:
            return output
        if is_functorch_wrapped_tensor(output) or is_functorch_wrapped_tensor(inputs):
            self.odd[name] = TRANSFORMED
            return output
        if self.axes.get(name) == SHARED and len(inputs) == 1 and self._size > 1:
            inputs = inputs.expand(self._size, *inputs.shape[1:])
            output = output.expand(self._size, *output.shape[1:]).contiguous()
        index = len(self.calls.setdefault(name, []))
        self.calls[name].append(Call(module, inputs.detach(), inputs._version, put_out=output.numel()))
        self.output_bytes.append(output.nbytes)
        if not torch.is_grad_enabled():
            self.without_gradient.add(name)
            return output
        assert self._anchor is not None
        tapped: Tensor = _Tap.apply(output, self._anchor)  # type: ignore[no-untyped-call]

        def arrive(gradient: Tensor) -> None:
            self._gradients.setdefault(name, {})[index] = gradient
            if len(self._gradients[name]) == len(self.calls[name]):
                self._flush(name)

        # registered before any in-place activation, so it sees the gradient of the layer's own output
        tapped.register_hook(arrive)
        return tapped

    def _flush(self, name: str) -> None:
        assert self._sink is not None
        calls = self.calls.pop(name) if self._last else self.calls[name]
        gradients = self._gradients.pop(name)
        if any(call.overwritten for call in calls):
            self.odd[name] = OVERWRITTEN
        for index, trouble in self.unplaced.get(name, {}).items():
            if index in gradients:
                self.odd.setdefault(name, trouble)
        if name not in self.odd:
            self._sink(
                name, [self._answered(name, call, gradients[i]) for i, call in enumerate(calls) if i in gradients]
            )

    def _answered(self, name: str, call: Call, gradient: Tensor) -> Call:
        """Return a call with the gradient that came back, its examples first."""
        axis = self.axes.get(name, FIRST)
        if self.arranges and axis != FIRST:
            first = arranged(gradient, axis, self._examples)
            assert first is not None  # as the inputs, of which every axis but the last is the outputs'
            gradient = first
        return Call(call.module, call.inputs, call.version, gradient)


@contextmanager
def capturing(
    model: nn.Module,
    layers: Mapping[str, Layer],
    *,
    autocast: torch.dtype | None = None,
    device: torch.device | None = None,
    axes: Mapping[str, str] | None = None,
    channels_last: bool = False,
    many_backward_passes: bool = False,
) -> Iterator[Capture]:
    """Tap the layers of the model for the time of the block; on another device, with copies of its weights.

    Args:
        model: the network.
        layers: its layers that are tapped.
        autocast: type of the forward pass, where a narrower one is asked for.
        device: where the work is done; the model's device where not given.
        axes: where the examples are, for layers that have them not on the first axis.
        channels_last: whether images lie in memory so (memory_layout.py).
        many_backward_passes: whether what makes these cheaper is worth some work in the forward pass.
    """
    state = {name: parameter.detach().to(device) for name, parameter in model.named_parameters()}
    state |= {name: buffer.detach().clone().to(device) for name, buffer in model.named_buffers()}
    state = state_with_channels_last(state) if channels_last else state
    expands = {name: layer for name, layer in layers.items() if layer.rule.expands}
    capture = Capture(model, state, autocast, dict(axes or {}), channels_last, expands=expands)
    norms = hooked_modules(norm_hooks(model) if many_backward_passes else [])
    taps = hooked(layers, lambda name, layer: _tap_hook(capture, name, layer.rule))
    # attentions also where they are not tapped: digits would depend on it
    attentions = seen_projections(all_projections(model))
    # norms after taps, so that a tapped norm is tapped behind its cheap backward pass
    with evaluation_mode(model), attentions, taps, norms:
        yield capture


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Switch dropout and batch statistics off, and put every module's own flag back afterwards."""
    flags = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        yield
    finally:
        for module, flag in flags:
            module.training = flag


def _tap_hook(capture: Capture, name: str, rule: LayerRule) -> Callable[..., Tensor]:
    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> Tensor:
        return capture._tap(name, module, rule.argument(module, args, kwargs), output)

    return hook


class _Tap(torch.autograd.Function):
    """The identity, with the anchor as a second input, so that every layer leads to it; copies nothing."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, anchor: Tensor) -> Tensor:
        # the same storage, but no view: a hook on a view is lost when an in-place activation follows
        return output.new_empty(0).set_(output.detach())  # type: ignore[call-overload, no-any-return]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None]:
        return gradients[0] if ctx.needs_input_grad[0] else None, None  # the anchor's own gradient is not wanted
