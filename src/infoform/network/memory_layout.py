"""Images with their channels innermost in memory ("channels last"), where convolutions are faster so.

oneDNN takes channels in blocks. Of images that lie channel by channel it makes a copy in blocks before every
convolution and one back after it; with channels innermost it needs none. What a network computes does not depend on
the layout, unless its own code looks at addresses: a network that fails so, or gives other outputs, keeps its layout.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from infoform.network.batches import Batch

BLOCK = 16  # channels that oneDNN takes at a time
WORTH = 0.5  # share of the multiplications in convolutions of whole blocks from which the layout pays


def with_channels_last(batch: Batch) -> Batch:
    """Return the batch with all images in it that have more than one channel copied to the other layout."""
    kwargs = {name: _copied(value) if isinstance(value, Tensor) else value for name, value in batch.kwargs.items()}
    args = tuple(_copied(value) if isinstance(value, Tensor) else value for value in batch.args)
    return replace(batch, args=args, kwargs=kwargs)


def state_with_channels_last(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return parameters and buffers with those of convolutions of images copied to the other layout."""
    return {name: _copied(value) for name, value in state.items()}


def channels_last_pays(work: Mapping[nn.Module, int], device: torch.device, dtype: torch.dtype) -> bool:
    """Tell from the multiplications of every layer whether the layout can be expected to pay."""
    if device.type != "cpu" or dtype != torch.float32 or not torch.backends.mkldnn.is_available():
        return False
    blocked = sum(count for module, count in work.items() if _is_blocked(module))
    return blocked > WORTH * sum(work.values())


def _is_blocked(module: nn.Module) -> bool:
    if not isinstance(module, nn.Conv2d) or module.groups > 1:
        return False
    return module.in_channels % BLOCK == 0 and module.out_channels % BLOCK == 0


def _copied(value: Tensor) -> Tensor:
    if value.dim() != 4 or not value.is_floating_point() or value.requires_grad:
        return value
    return value.contiguous(memory_format=torch.channels_last)
