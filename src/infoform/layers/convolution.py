"""Convolutions in one, two and three dimensions: a linear map on patches, shared over the output's positions."""

import math
from itertools import chain
from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional

from infoform.layers.base import LayerRule

Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d


class ConvolutionRule(LayerRule):
    """`nn.Conv1d/2d/3d` with any stride, dilation, groups, padding and padding mode."""

    TYPES: ClassVar[tuple[type[Convolution], ...]] = (nn.Conv1d, nn.Conv2d, nn.Conv3d)

    def applies(self, module: nn.Module) -> bool:
        return any(
            isinstance(module, known)
            and type(module).forward is known.forward
            and type(module)._conv_forward is known._conv_forward
            for known in self.TYPES
        )

    def inputs(self, module: nn.Module, x: Tensor) -> Tensor:
        assert isinstance(module, self.TYPES)
        x = _pad(module, x)
        for axis, (size, stride, dilation) in enumerate(
            zip(module.kernel_size, module.stride, module.dilation, strict=True), start=2
        ):
            x = x.unfold(axis, dilation * (size - 1) + 1, stride)[..., ::dilation]
        # (N, H * C, *positions, *kernel) -> (H, N, A, S), A in the order of a flattened weight: with positions
        # innermost the copy runs along rows of the image
        dims = len(module.kernel_size)
        x = x.unflatten(1, (module.groups, -1))
        x = x.permute(1, 0, 2, *range(3 + dims, 3 + 2 * dims), *range(3, 3 + dims))
        groups, examples, channels, *sizes = x.shape
        size = channels * math.prod(sizes[:dims])
        patches = x.new_empty(groups, examples, size + (module.bias is not None), math.prod(sizes[dims:]))
        patches[:, :, :size].unflatten(2, (channels, *sizes[:dims])).unflatten(-1, sizes[dims:]).copy_(x)
        patches[:, :, size:] = 1
        return patches.mT

    def gradients(self, module: nn.Module, g: Tensor) -> Tensor:
        assert isinstance(module, self.TYPES)
        positions: Tensor = g.flatten(2).unflatten(1, (module.groups, -1))  # (N, H, G / H, S)
        return positions.permute(1, 0, 3, 2)


def _pad(module: Convolution, x: Tensor) -> Tensor:
    if module.padding == "valid":
        return x
    if module.padding == "same":
        total = [d * (k - 1) for d, k in zip(module.dilation, module.kernel_size, strict=True)]
        pads = [(t // 2, t - t // 2) for t in total]
    else:
        pads = [(int(p), int(p)) for p in module.padding]
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    # functional.pad counts from the last axis
    return functional.pad(x, list(chain.from_iterable(reversed(pads))), mode=mode)
