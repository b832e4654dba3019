"""A layer's inputs and output gradients from one forward and backward pass, the model left as found.

Parameters enter detached, so that backpropagation computes gradients of activations only, never of weights.
Buffers enter as copies; training flags and hooks are put back on leaving, also after an exception.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from infoform.network.batches import Batch, read_outputs
from infoform.network.hooks import hooked
from infoform.network.layer import Layer


@dataclass(frozen=True)
class Call:
    """One call of a layer: the module called, what went in, and, after a backward pass, what came back."""

    module: nn.Module
    inputs: Tensor  # (N, ...)
    version: int  # of the inputs: tells whether they were overwritten later
    gradients: Tensor | None = None  # (N, ...)

    @property
    def dtype(self) -> torch.dtype:
        """Return the type that the layer computes in: its inputs', unless they are whole numbers (words, say)."""
        if self.inputs.is_floating_point() or self.gradients is None:
            return self.inputs.dtype
        return self.gradients.dtype


# takes a layer's name and its calls of one backward pass
GradientSink = Callable[[str, list[Call]], None]


@dataclass
class Capture:
    """Runs the model on one batch at a time with its layers tapped; made by `capturing`."""

    model: nn.Module
    state: dict[str, Tensor]
    autocast: torch.dtype | None = None  # of the forward pass, where a narrower one is asked for
    calls: dict[str, list[Call]] = field(default_factory=dict)
    output_bytes: list[int] = field(default_factory=list)  # put out by each call of a layer
    _anchor: Tensor | None = None
    _gradients: dict[str, dict[int, Tensor]] = field(default_factory=dict)
    _sink: GradientSink | None = None
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
        self.output_bytes.clear()
        self._anchor = next(iter(self.state.values())).new_zeros((), requires_grad=True)
        with torch.enable_grad(), self._casting():
            outputs = read_outputs(functional_call(self.model, self.state, batch.args, batch.kwargs))
        return outputs if self.autocast is None else outputs.float()

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
        finally:
            self._gradients, self._sink = {}, None

    def _tap(self, name: str, module: nn.Module, inputs: Tensor, output: Tensor) -> Tensor:
        index = len(self.calls.setdefault(name, []))
        self.calls[name].append(Call(module, inputs.detach(), inputs._version))
        self.output_bytes.append(output.nbytes)
        if not torch.is_grad_enabled():
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
        for call in calls:
            if call.inputs._version != call.version:
                raise ValueError(
                    f"the inputs of layer '{name}' are overwritten in place later in the forward pass, so its "
                    "gradients cannot be had; make that operation out of place, or exclude the layer with layers=."
                )
        gradients = self._gradients.pop(name)
        self._sink(
            name,
            [Call(c.module, c.inputs, c.version, gradients[i]) for i, c in enumerate(calls) if i in gradients],
        )


@contextmanager
def capturing(
    model: nn.Module,
    layers: Mapping[str, Layer],
    *,
    autocast: torch.dtype | None = None,
    device: torch.device | None = None,
) -> Iterator[Capture]:
    """Tap the layers of the model for the time of the block; on another device, with copies of its weights."""
    state = {name: parameter.detach().to(device) for name, parameter in model.named_parameters()}
    state |= {name: buffer.detach().clone().to(device) for name, buffer in model.named_buffers()}
    capture = Capture(model, state, autocast)
    with evaluation_mode(model), unfused_encoder(), hooked(layers, lambda name, _: _tap_hook(capture, name)):
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


@contextmanager
def unfused_encoder() -> Iterator[None]:
    """Run nn.TransformerEncoderLayer by its parts: its fused kernel never calls the linear layers inside it."""
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)


def _tap_hook(capture: Capture, name: str) -> Callable[..., Tensor]:
    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> Tensor:
        return capture._tap(name, module, args[0] if args else kwargs["input"], output)

    return hook


class _Tap(torch.autograd.Function):
    """The identity, with the anchor as a second input, so that every layer leads to it; copies nothing."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, anchor: Tensor) -> Tensor:
        # the same storage, but no view: a hook on a view is lost when an in-place activation follows
        return output.new_empty(0).set_(output.detach())  # type: ignore[call-overload, no-any-return]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor]:
        return gradients[0] if ctx.needs_input_grad[0] else None, gradients[0].new_zeros(())
