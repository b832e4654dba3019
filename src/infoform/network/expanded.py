"""The gradients of single parameters by example: those of a network with one copy of them for each example.

The network runs on all examples at once, each with its own copy (`torch.vmap`). Where it does what vmap has no rule
for, as recurrent layers and choices by value do, the examples run one after the other.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from infoform.network.attention_setting import plain_attention
from infoform.network.batches import Batch, batch_size, cut_batch, read_outputs
from infoform.network.one_example_norm import repaired_batch_norm

TOLERANCE = {torch.float64: 1e-4, torch.float32: 1e-2}  # of outputs; of others 5 %


@dataclass
class ExpandedNetwork:
    """A network on one batch, with copies of some parameters."""

    copies: Mapping[str, Sequence[Tensor]]  # by parameter: one tensor (N, ...), or N of them
    outputs: Tensor  # (N, ...)
    together: bool  # whether it is one tensor

    @classmethod
    def run(
        cls,
        model: nn.Module,
        state: Mapping[str, Tensor],
        names: Sequence[str],
        batch: Batch,
        casting: Callable[[], AbstractContextManager[None]],
    ) -> "ExpandedNetwork":
        """Run the network.

        Args:
            model: The network, in evaluation mode.
            state: Its parameters and buffers.
            names: The parameters that are copied.
            batch: At least one example; it can be cut into examples.
            casting: Makes a context of the forward pass.
        """
        count = batch_size(batch)
        with torch.enable_grad():
            try:
                with plain_attention(), casting(), warnings.catch_warnings():
                    warnings.filterwarnings("ignore", message="There is a performance drop")  # right, but slower
                    return _together(model, state, names, batch, count)
            except (RuntimeError, ValueError, NotImplementedError, TypeError):
                with casting():
                    return _one_by_one(model, state, names, batch, count)

    def agrees_with(self, outputs: Tensor | None) -> bool:  # (N, ...)
        """Whether the batch as a whole has these outputs, up to rounding: an argument may not be of single examples."""
        if outputs is None or outputs.shape != self.outputs.shape:
            return False
        own, size = self.outputs.detach(), outputs.abs().max().clamp_min(torch.finfo(outputs.dtype).tiny)
        return bool((own.to(outputs) - outputs).abs().max() <= TOLERANCE.get(outputs.dtype, 0.05) * size)

    def gradients(self, vector: Tensor, *, last: bool) -> dict[str, Tensor]:  # (N, C) -> (N, ...) by parameter
        """Return what `vector` gives when it is sent back; `last` if nothing else will be."""
        leaves = [leaf for copies in self.copies.values() for leaf in copies]
        if not self.outputs.requires_grad:
            return {}
        found = torch.autograd.grad(
            self.outputs,
            leaves,
            vector.to(self.outputs).reshape(self.outputs.shape),
            retain_graph=not last,
            allow_unused=True,
        )
        rest = iter(found)
        gradients = {}
        for name, copies in self.copies.items():
            own = [next(rest) for _ in copies]
            if all(one is None for one in own):
                continue
            pairs = zip(copies, own, strict=True)
            filled = [torch.zeros_like(leaf) if one is None else one.to_dense() for leaf, one in pairs]
            gradients[name] = filled[0] if self.together else torch.stack(filled)
        return gradients


def _together(
    model: nn.Module, state: Mapping[str, Tensor], names: Sequence[str], batch: Batch, count: int
) -> ExpandedNetwork:
    copies = {name: state[name].detach().expand(count, *state[name].shape).requires_grad_() for name in names}

    def run(own: dict[str, Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        outputs = functional_call(
            model, {**state, **own}, tuple(map(_alone, args)), {name: _alone(one) for name, one in kwargs.items()}
        )
        return read_outputs(outputs)[0]

    def _alone(value: Any) -> Any:
        return value.unsqueeze(0) if isinstance(value, Tensor) and id(value) not in shared else value

    shared = {id(one) for one in batch.tensors() if not one.dim()}
    axes = tuple(_axis(one) for one in batch.args), {name: _axis(one) for name, one in batch.kwargs.items()}
    outputs: Tensor = vmap(run, in_dims=(0, *axes), randomness="same")(copies, batch.args, batch.kwargs)
    return ExpandedNetwork({name: [one] for name, one in copies.items()}, outputs, together=True)


def _axis(value: Any) -> int | None:
    return 0 if isinstance(value, Tensor) and value.dim() else None


def _one_by_one(
    model: nn.Module, state: Mapping[str, Tensor], names: Sequence[str], batch: Batch, count: int
) -> ExpandedNetwork:
    copies: dict[str, list[Tensor]] = {name: [] for name in names}
    outputs = []
    for number in range(count):
        own = {name: state[name].detach().clone().requires_grad_() for name in names}
        part = cut_batch(batch, slice(number, number + 1))
        with repaired_batch_norm(model, part):
            outputs.append(read_outputs(functional_call(model, {**state, **own}, part.args, part.kwargs)))
        for name, one in own.items():
            copies[name].append(one)
    return ExpandedNetwork(copies, torch.cat(outputs), together=False)
