"""The inputs of an exported graph: the tensors among the model's arguments, by their names."""

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from infoform.export.guaranteed import MEANINGS
from infoform.export.outputs import OUTPUTS
from infoform.network.batches import Batch, batch_size, cut_batch

TAKEN = {*(one.name for one in OUTPUTS), *MEANINGS}  # names of outputs, which no input of a file may have too
TRACED = 4  # examples that a graph is traced with; of one alone the batch axis would be taken for a constant


@dataclass(frozen=True)
class GraphInputs:
    """How a graph's tensors become one call of the model; arguments that are no tensors are constants."""

    names: tuple[str, ...]
    args: tuple[Any, ...]  # a place among the tensors, or a constant
    kwargs: dict[str, Any]

    def batch(self, tensors: tuple[Tensor, ...]) -> Batch:
        """Return the call of the model that these tensors make."""

        def filled(value: Any) -> Any:
            return tensors[value.place] if isinstance(value, _Place) else value

        kwargs = {name: filled(value) for name, value in self.kwargs.items()}
        return Batch(tuple(filled(value) for value in self.args), kwargs, None)


@dataclass(frozen=True)
class _Place:
    """The number of a tensor among a graph's inputs."""

    place: int


def read_graph_inputs(model: nn.Module, batch: Batch) -> tuple[GraphInputs, tuple[Tensor, ...]]:
    """Return the form of a model's inputs, and some examples of them.

    Args:
        model: gives the names of its arguments.
        batch: at least one example.

    Raises:
        ValueError: if a tensor among the arguments has not one row an example: its first axis would not be the batch.
    """
    count = batch_size(batch)
    repeated = Batch(tuple(map(_twice, batch.args)), {k: _twice(v) for k, v in batch.kwargs.items()}, None)
    batch = cut_batch(batch if count > 1 else repeated, slice(0, TRACED))
    names: list[str] = []
    tensors: list[Tensor] = []

    def taken(name: str, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if value.dim() == 0 or len(value) != batch_size(batch):
            raise ValueError(
                f"an exported graph takes tensors with one row for each example, got '{name}' of shape "
                f"{tuple(value.shape)} in a batch of {batch_size(batch)}; make it a part of the model."
            )
        names.append(f"input_{name}" if name in TAKEN else name)
        tensors.append(value)
        return _Place(len(tensors) - 1)

    args = tuple(taken(name, value) for name, value in zip(_argument_names(model, batch), batch.args, strict=True))
    kwargs = {name: taken(name, value) for name, value in batch.kwargs.items()}
    return GraphInputs(tuple(names), args, kwargs), tuple(tensors)


def _twice(value: Any) -> Any:
    return torch.cat([value, value]) if isinstance(value, Tensor) and value.dim() else value


def _argument_names(model: nn.Module, batch: Batch) -> list[str]:
    """Return names of the positional arguments: those of the model's forward method where it has them."""
    known = [
        one.name
        for one in inspect.signature(model.forward).parameters.values()
        if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]
    return [known[place] if place < len(known) else f"input_{place}" for place in range(len(batch.args))]
