"""The first batch of data through the network, and the option that helps where the network does not take it.

The remedy is found by trying: the batch is changed as an option would change it, and the option that makes the network
take it is named.
"""

from collections.abc import Callable, Iterator
from shlex import quote

import torch
from torch import Tensor, nn

from infoform.cli.mistakes import Mistake
from infoform.cli.sources import Data
from infoform.cli.sources.images import ImageFiles
from infoform.likelihoods.positions import outputs_last
from infoform.network.batches import Batch, device_of, read_batch, read_outputs

NEAR_IDS = 10  # times as many numbers as rows, at most, lie between the smallest and the largest id
MOST_COLUMNS = 512  # that are tried one less at a time


def try_first_batch(model: nn.Module, data: Data, spec: str) -> int:
    """Return the number of outputs for the first batch; raise with a remedy where the network does not take it."""
    raw = next(iter(data.loader), None)
    if raw is None:
        raise Mistake(f"'{spec}' gave no batches; check the data.")
    batch = read_batch(raw, device_of(model))
    try:
        with torch.no_grad():
            outputs = read_outputs(model(*batch.args, **batch.kwargs))
    except Exception as error:
        shapes = ", ".join(f"{tuple(x.shape)} {str(x.dtype).removeprefix('torch.')}" for x in batch.tensors())
        raise Mistake(
            f"the network fails on the first batch of '{spec}' (inputs {shapes}): "
            f"{(str(error).splitlines() or [type(error).__name__])[0]}; {_remedy(model, batch, data)}."
        ) from error
    return outputs_last(outputs, None).shape[-1] if outputs.dim() > 1 else 1


def _remedy(model: nn.Module, batch: Batch, data: Data) -> str:
    """Return what to do: the first change after which the network takes the batch."""
    single = batch.args[0] if len(batch.args) == 1 and not batch.kwargs else None
    if not isinstance(single, Tensor) or single.dim() == 0:
        return "check data and network"
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    x = single[:2]
    divided, whole = "", not x.is_floating_point()
    if whole:
        bytes_ = x.dtype == torch.uint8 and int(single.max()) > 1
        number = "255, as for pixels," if bytes_ else "1"
        divided = f"give --divide-by {number} to make them floating-point"
        x = x.to(dtype)
        if _takes(model, x):
            return divided
    for remedy, change in _changes(x, data):
        if _takes(model, change(x)):
            return f"{divided}, and {remedy}" if whole else remedy
    columns = data.facts.columns
    if columns is not None and x.dim() == 2:
        return _columns_remedy(model, x, columns, data)
    return divided or "check data and network"


def _changes(x: Tensor, data: Data) -> Iterator[tuple[str, Callable[[Tensor], Tensor]]]:
    """Yield options, and what they would do to a batch."""
    if x.dim() == 4 and isinstance(getattr(data.loader, "dataset", None), ImageFiles):
        if x.shape[1] == 3:
            yield "the network takes one channel: give --gray", lambda x: x[:, :1]
        elif x.shape[1] == 1:
            yield "the network takes three channels: leave out --gray, or give --colour", lambda x: x.repeat(1, 3, 1, 1)
        return
    if data.facts.columns is None and x.dim() in (2, 3):
        yield "the network wants a channel axis: give --channels none", lambda x: x.unsqueeze(1)
    if data.facts.columns is None and x.dim() >= 3:
        yield "the network wants the channels first: give --channels last", lambda x: x.movedim(-1, 1)


def _columns_remedy(model: nn.Module, x: Tensor, columns: list[str], data: Data) -> str:
    """Return which columns there are, how many the network takes, and which look like numbers of rows."""
    shown = ", ".join(columns[:10]) + (", ..." if len(columns) > 10 else "")
    widths = range(len(columns) - 1, 0, -1) if len(columns) <= MOST_COLUMNS else ()
    taken = next((width for width in widths if _takes(model, x[:, :width])), None)
    if taken is None:
        return f"the table gives it {len(columns)} columns ({shown}); add those that are missing, or check the network"
    likely = [name for place, name in enumerate(columns) if _counts(data, place)][: len(columns) - taken]
    ignore = f"--ignore {quote(','.join(likely))}" if likely else "--ignore"
    return (
        f"the network takes {taken} columns and the table gives {len(columns)} ({shown}); leave out those that it was "
        f"not trained on with {ignore}"
    )


def _counts(data: Data, place: int) -> bool:
    """Tell whether a column of a table may be an id: whole numbers, no two alike, and not far apart."""
    values = torch.cat([batch[0][:, place] for batch in data.loader])
    whole = bool((values == values.round()).all()) and len(values.unique()) == len(values) > 1
    return whole and float(values.max() - values.min()) < NEAR_IDS * len(values)


def _takes(model: nn.Module, x: Tensor) -> bool:
    try:
        with torch.no_grad():
            read_outputs(model(x))
    except Exception:
        return False
    return True
