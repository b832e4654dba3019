"""From a layer's calls in one backward pass to the gradients of some examples, in the form that suits its weight."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from infoform.fitting.per_example_gradients import Formed, Gradients, OuterGradients, RowGradients, SharedGradients
from infoform.layers.base import is_outer
from infoform.layers.embedding import sum_rows
from infoform.network.capture import Call
from infoform.network.layer import Layer


def form_gradients(layer: Layer, calls: Sequence[Call], part: slice) -> Gradients:
    """Return the gradients of some examples; several calls of a layer are more positions of its weight."""
    uses = _uses(calls, part)
    if layer.rule.sparse:
        indices, values = _rows(layer, uses)
        return RowGradients(*sum_rows(indices, values, height=layer.shape[0]))
    if layer.rule.forms:
        formed = layer_matrices(layer, uses)
        return SharedGradients(formed[None, :, :0].mT, Formed(formed))
    inputs, positions = _Inputs(layer, uses), _positions(layer, uses)
    if is_outer(positions):
        return OuterGradients(inputs.patches()[0, :, 0], positions[0, :, 0])
    return SharedGradients(positions, inputs)


@dataclass(frozen=True)
class WeightUse:
    """How an example uses the weight of a layer."""

    groups: int  # H
    positions: int  # S, over all calls
    itemsize: int  # bytes of a number of the sums
    unfolds: bool  # whether ∇ cannot be had without patches
    width: int | None = None  # numbers that ∇ of an example takes, where they are not those of the weight

    @property
    def outer(self) -> bool:
        return self.groups == 1 and self.positions == 1 and self.unfolds

    @classmethod
    def of(cls, layer: Layer, calls: Sequence[Call]) -> "WeightUse":
        """Look at the first example of some calls."""
        uses = _uses(calls, slice(0, 1))
        if layer.rule.sparse:
            _, values = _rows(layer, uses)
            return cls(1, values.shape[1], values.element_size(), unfolds=False, width=4 * values[0].numel())
        if layer.rule.forms:
            return cls(1, 1, uses[0].gradients.element_size(), unfolds=False)
        positions = _positions(layer, uses)
        groups, _, count, _ = positions.shape
        return cls(groups, count, positions.element_size(), not _Inputs(layer, uses).forms_matrices)


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of sums: those of half precision would lose examples."""
    return torch.promote_types(dtype, torch.float32)


@dataclass(frozen=True)
class _Use:
    """What one call of a layer got in and got back, of some examples."""

    module: nn.Module
    inputs: Tensor  # (N, ...)
    gradients: Tensor  # (N, ...)


@dataclass(frozen=True)
class _Inputs:
    """The inputs of a shared weight as its calls saw them, unfolded where that is needed."""

    layer: Layer
    uses: Sequence[_Use]

    @property
    def width(self) -> int:
        return self.layer.shape[1]

    def patches(self) -> Tensor:
        return _joined([self.layer.rule.inputs(use.module, use.inputs) for use in self.uses])

    @property
    def forms_matrices(self) -> bool:
        """Whether `matrices` needs no patches."""
        return len(self.uses) == 1 and self.layer.rule.forms_matrices(self.uses[0].module, self.uses[0].gradients)

    def matrices(self) -> Tensor | None:
        if len(self.uses) > 1:
            return None
        (use,) = self.uses
        return self.layer.rule.matrices(use.module, use.inputs, use.gradients)

    def rows(self, chosen: Tensor) -> "_Inputs":
        some = [_Use(use.module, use.inputs[chosen], use.gradients[chosen]) for use in self.uses]
        return _Inputs(self.layer, some)


def layer_matrices(layer: Layer, uses: Sequence["_Use"]) -> Tensor:  # (N, G, A)
    """Return ∇ where the rule knows no other way, the sum over all calls."""
    total = None
    for use in uses:
        formed = layer.rule.matrices(use.module, use.inputs, use.gradients)
        assert formed is not None
        total = formed if total is None else total + formed
    assert total is not None
    return total


def _rows(layer: Layer, uses: Sequence["_Use"]) -> tuple[Tensor, Tensor]:  # (N, S), (N, S, A)
    """Return which rows of a table the examples use, and the gradients there."""
    rule = layer.rule
    indices = [rule.row_indices(use.module, use.inputs) for use in uses]
    values = [rule.row_gradients(use.module, use.inputs, use.gradients) for use in uses]
    return torch.cat(indices, dim=1), torch.cat(values, dim=1)


def _uses(calls: Sequence[Call], part: slice) -> list[_Use]:
    return [
        _Use(call.module, _widened(call.inputs[part]), _widened(call.gradients[part]))
        for call in calls
        if call.gradients is not None
    ]


def _positions(layer: Layer, uses: Sequence[_Use]) -> Tensor:  # (H, N, S, G / H)
    return _joined([layer.rule.gradients(use.module, use.gradients) for use in uses])


def _widened(x: Tensor) -> Tensor:
    return x.to(wide_dtype(x.dtype)) if x.is_floating_point() else x  # a rule reads whole numbers itself


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)
