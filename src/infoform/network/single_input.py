"""Inputs that lack an axis, of examples or of channels: what the user meant is found by trying, after an error."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from torch import Tensor, nn

from infoform.common.randomness import isolated
from infoform.network.batches import Batch
from infoform.network.last_layer import plain_outputs

ERRORS = (RuntimeError, ValueError, IndexError)  # of a network that does not take its inputs


@contextmanager
def missing_axis_told(model: nn.Module, batch: Callable[[], Batch | None]) -> Iterator[None]:
    """Raise a sentence in place of the network's own error where one more axis is all that its inputs lack.

    Args:
        model: The user's network; it is left as found.
        batch: Gives the inputs that the network failed on; called after an error alone.

    Raises:
        ValueError: The sentence.
    """
    try:
        yield
    except ERRORS as error:
        told = None
        with suppress(Exception), isolated(0):  # data that cannot be read again have no sentence
            failed = batch()
            told = None if failed is None or _takes(model, failed) else missing_axis(model, failed)
        if told is None:
            raise
        raise ValueError(told) from error


def missing_axis(model: nn.Module, batch: Batch) -> str | None:
    """Return a sentence where the network takes these inputs only with one or two more axes; None elsewhere."""
    tensors = [tensor for tensor in batch.tensors() if tensor.dim()]
    if not tensors:
        return None
    x = tensors[0]
    one = f"which is that of one input; give {_name(batch)}"
    ways: tuple[tuple[Callable[[Tensor], Tensor], int, str, str], ...] = (
        (lambda t: t.unsqueeze(0), 1, "an axis of examples in front", f"{one}.unsqueeze(0)"),
        (lambda t: t.unsqueeze(1), len(x), "an axis of channels", f"without one; give {_name(batch)}.unsqueeze(1)"),
        (lambda t: t[None, None], 1, "axes of examples and of channels in front", f"{one}[None, None]"),
    )
    for more, examples, rule, remedy in ways:
        try:
            outputs = plain_outputs(model, _mapped(batch, more))
        except Exception:
            continue
        if outputs.dim() == 2 and len(outputs) == examples:
            shapes = f"have the shape {tuple(x.shape)}, {remedy}, of shape {tuple(more(x).shape)}"
            return f"inputs must have {rule}, and these {shapes}."
    return None


def _takes(model: nn.Module, batch: Batch) -> bool:
    """Tell whether the network gives rows of outputs for the inputs as they are: then the error was another one."""
    try:
        return plain_outputs(model, batch).dim() > 1
    except Exception:
        return False


def _mapped(batch: Batch, more: Callable[[Tensor], Tensor]) -> Batch:
    args = tuple(more(value) if isinstance(value, Tensor) and value.dim() else value for value in batch.args)
    kwargs = {
        name: more(value) if isinstance(value, Tensor) and value.dim() else value
        for name, value in batch.kwargs.items()
    }
    return replace(batch, args=args, kwargs=kwargs, targets=None)


def _name(batch: Batch) -> str:
    """Return what the sentence calls the first tensor."""
    return "x" if batch.args else next(iter(batch.kwargs))
