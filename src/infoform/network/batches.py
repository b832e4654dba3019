"""What a loader may give: (input, target) tuples, dicts as Hugging Face models take them, or inputs alone."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

TARGET_KEYS = ("labels", "label", "targets", "target", "y")
MASKS = {"attention_mask": False, "src_key_padding_mask": True}  # arguments of models, and whether they mark padding
PLAIN = bool | int | float | str | None  # what all examples of a batch share


@dataclass(frozen=True)
class Batch:
    """The arguments of one call of the model, and its targets where there are any."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    targets: Tensor | None

    def tensors(self) -> Iterator[Tensor]:
        return (value for value in (*self.args, *self.kwargs.values()) if isinstance(value, Tensor))


def read_batch(batch: Any, device: torch.device) -> Batch:
    """Split what a loader gives into arguments and targets, on the model's device."""
    if isinstance(batch, Tensor):
        return Batch((batch.to(device),), {}, None)
    if isinstance(batch, Mapping):
        key = next((key for key in TARGET_KEYS if key in batch), None)
        kwargs = {name: _move(value, device) for name, value in batch.items() if name != key}
        return Batch((), kwargs, None if key is None else _target(batch[key], device))
    if isinstance(batch, Sequence) and not isinstance(batch, str) and batch:
        *inputs, target = batch if len(batch) > 1 else (batch[0], None)
        if len(inputs) == 1 and isinstance(inputs[0], Mapping):
            return Batch((), {k: _move(v, device) for k, v in inputs[0].items()}, _target(target, device))
        return Batch(tuple(_move(value, device) for value in inputs), {}, _target(target, device))
    raise TypeError(
        "a batch must be a tensor, an (input, target) tuple or a dict of the model's arguments, "
        f"got {type(batch).__name__}; adapt the loader's collate function."
    )


def read_inputs(x: Any, device: torch.device) -> Batch:
    """Take inputs alone: a tensor, a tuple of the model's arguments, or a dict of them (targets in it are left out)."""
    if isinstance(x, tuple | list):
        return Batch(tuple(_move(value, device) for value in x), {}, None)
    batch = read_batch(x, device)
    return Batch(batch.args, batch.kwargs, None)


def batch_size(batch: Batch) -> int:
    """Return the number of examples: of the targets, or else the longest first axis among the arguments.

    Where arguments have several lengths only the model's outputs tell; such a batch is never cut.
    """
    if batch.targets is not None and batch.targets.dim():
        return len(batch.targets)
    return max((len(tensor) for tensor in batch.tensors() if tensor.dim()), default=0)


def is_divisible(batch: Batch) -> bool:
    """Whether examples can be taken out of a batch: all its tensors have one row an example, and all else is plain.

    Offsets into a longer tensor, masks of positions or graphs are not: a part of them would mean something else.
    """
    count = batch_size(batch)

    def is_plain(value: Any) -> bool:
        return len(value) == count if isinstance(value, Tensor) and value.dim() else isinstance(value, Tensor | PLAIN)

    return all(map(is_plain, (*batch.args, *batch.kwargs.values())))


def split_batch(batch: Batch, size: int) -> Iterator[Batch]:
    """Cut a batch into parts of at most `size` examples; one that cannot be cut is given whole."""
    if not is_divisible(batch):
        if batch_size(batch):
            yield batch
        return
    for start in range(0, batch_size(batch), size):
        yield cut_batch(batch, slice(start, start + size))


def cut_batch(batch: Batch, part: slice) -> Batch:
    """Return some examples that follow each other, of a batch that is divisible."""
    return _picked(batch, part)


def select_rows(batch: Batch, rows: Tensor | list[int]) -> Batch | None:  # (n,)
    """Return some of the examples; None where the batch is not divisible."""
    return _picked(batch, rows) if is_divisible(batch) else None


def squares(batch: Batch) -> list[Tensor]:
    """Return arguments (N, N, ...), of which one may be of all examples alike: a mask of as many positions."""
    count, every = batch_size(batch), list(batch.tensors())
    found = [value for value in every if value.dim() > 1 and tuple(value.shape[:2]) == (count, count)]
    return found if len(every) > 1 else []


def select_rows_beside(batch: Batch, rows: Tensor | list[int], shared: Sequence[Tensor]) -> Batch:  # (n,)
    """Return some of the examples, with these arguments as they are."""
    return _picked(batch, rows, shared)


def _picked(batch: Batch, rows: Tensor | list[int] | slice, shared: Sequence[Tensor] = ()) -> Batch:
    def pick(value: Any) -> Any:
        whole = any(value is one for one in shared)
        return value[rows] if isinstance(value, Tensor) and value.dim() and not whole else value

    kwargs = {name: pick(value) for name, value in batch.kwargs.items()}
    return Batch(tuple(map(pick, batch.args)), kwargs, pick(batch.targets))


def token_mask(batch: Batch) -> Tensor | None:  # (N, T)
    """Return which tokens of each example are no padding, where an argument of the model says so."""
    for name, marks_padding in MASKS.items():
        mask = batch.kwargs.get(name)
        if isinstance(mask, Tensor) and mask.dim() == 2:
            return mask == 0 if marks_padding else mask != 0
    return None


def read_outputs(outputs: Any) -> Tensor:
    """Return the tensor of outputs, also from a Hugging Face model's output object."""
    if isinstance(outputs, Tensor):
        return outputs
    logits = outputs.get("logits") if isinstance(outputs, Mapping) else getattr(outputs, "logits", None)
    if isinstance(logits, Tensor):
        return logits
    raise TypeError(
        f"the model must return a tensor, or an object with .logits, got {type(outputs).__name__}; "
        "wrap it in a module that returns the outputs alone."
    )


def device_of(model: nn.Module) -> torch.device:
    """Return the device of the model's first parameter."""
    parameter = next(model.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device


def _move(value: Any, device: torch.device) -> Any:
    return value.to(device) if isinstance(value, Tensor) else value


def _target(value: Any, device: torch.device) -> Tensor | None:
    if isinstance(value, Mapping):
        raise TypeError(
            "targets must be one tensor, got a dict; of several heads Heads(...).join_targets(targets) makes one."
        )
    if value is None or isinstance(value, Tensor):
        return _move(value, device)  # type: ignore[no-any-return]
    return torch.as_tensor(value, device=device)
