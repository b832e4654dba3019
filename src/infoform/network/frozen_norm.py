"""Batch norm in evaluation mode with a cheap backward pass.

    y = (x − mean) · w / sqrt(var + ε) + b,    ∂y/∂x = w / sqrt(var + ε), one factor a channel

torch's backward pass also sums what the gradients of w and b would need, which takes several times as long as the
multiplication. The forward pass is torch's own.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from infoform.network.hooks import Hook


def norm_hooks(model: nn.Module) -> Iterator[tuple[nn.Module, Hook]]:
    """Give every batch norm that has statistics of its own, with the hook that makes its backward pass cheap."""
    for module in model.modules():
        if isinstance(module, _BatchNorm) and type(module).forward is _BatchNorm.forward:
            yield module, _multiplying


def _multiplying(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> Tensor | None:
    inputs = args[0] if args else kwargs["input"]
    batched = torch._C._functorch.is_batchedtensor(inputs)  # vmap has no rule for it
    if module.training or not isinstance(module.running_var, Tensor) or not inputs.requires_grad or batched:
        return None
    if inputs.dtype != output.dtype:
        return None
    assert isinstance(module.eps, float)
    factor = (module.running_var + module.eps).rsqrt().to(output)
    if isinstance(module.weight, Tensor):
        factor = factor * module.weight.detach()
    factor = factor.view(1, -1, *[1] * (output.dim() - 2))
    if output.dim() == 4 and not output.is_contiguous():  # one long row is multiplied faster than many short ones
        factor = factor.expand(1, *output.shape[1:]).contiguous(memory_format=torch.channels_last)
    product: Tensor = inputs * factor  # whose backward pass is wanted; its numbers are not, which are rounded otherwise
    product.data = output.detach()
    return product
