"""One input without an axis of examples, where a batch is needed: what the user meant is found by trying."""

import torch
from torch import nn

from infoform.network.batches import Batch, read_outputs


def missing_batch_axis(model: nn.Module, batch: Batch) -> str | None:
    """Return a sentence where the network takes these inputs only with one more axis in front; None elsewhere."""
    tensors = list(batch.tensors())
    if len(tensors) != 1 or batch.kwargs:
        return None
    (x,) = tensors
    try:
        with torch.no_grad():
            outputs = read_outputs(model(x.unsqueeze(0)))
    except Exception:
        return None
    if outputs.dim() != 2 or len(outputs) != 1:
        return None
    return (
        f"inputs must have an axis of examples in front, and these have the shape {tuple(x.shape)}, which is that of "
        f"one input; give x.unsqueeze(0), of shape {(1, *x.shape)}."
    )
