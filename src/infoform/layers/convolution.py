"""Convolutions in one, two and three dimensions: a linear map on patches, shared over the output's positions."""

import math
from itertools import chain
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from infoform.layers.base import LayerRule, pool_positions

Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d
CHANNELS = 16  # that oneDNN takes at a time;
MANY_POSITIONS = 4096  # from which it is faster than patches with any number of them


class ConvolutionRule(LayerRule):
    """`nn.Conv1d/2d/3d` with any stride, dilation, groups, padding and padding mode."""

    types: ClassVar[tuple[type[Convolution], ...]] = (nn.Conv1d, nn.Conv2d, nn.Conv3d)

    def applies(self, module: nn.Module) -> bool:
        return any(
            isinstance(module, known)
            and type(module).forward is known.forward
            and type(module)._conv_forward is known._conv_forward
            for known in self.types
        )

    def inputs(self, module: nn.Module, x: Tensor) -> Tensor:
        assert isinstance(module, self.types)
        x, parts = _without_parts(module, x)
        # patches with positions innermost are copied along rows of the image: of channels that lie last, one by one
        x = _pad(module, x.contiguous())
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
        return _with_parts(patches.mT, parts)

    def pooled(self, module: nn.Module, x: Tensor, *, mask: Tensor | None = None) -> Tensor:
        # channels as they are: patches of them would tell the same many times
        # as they lie in memory: flatten(2) would copy channels that lie last
        return pool_positions(x.movedim(1, -1).flatten(1, -2) if _channels_lie_last(x) else x.flatten(2).mT)

    def matrices(self, module: nn.Module, x: Tensor, g: Tensor) -> Tensor | None:
        assert isinstance(module, self.types)
        return convolved(module, x, g) if self.forms_matrices(module, g) else None

    def forms_matrices(self, module: nn.Module, g: Tensor) -> bool:
        """Whether oneDNN forms ∇, and faster than it is had from patches: where it is not larger than those are."""
        assert isinstance(module, self.types)
        if g.device.type != "cpu" or g.dtype != torch.float32 or not torch.backends.mkldnn.is_available():
            return False
        if g.dim() > len(module.kernel_size) + 2:  # ∇ of an example is a sum over its parts
            return False
        positions = math.prod(g.shape[2:])
        return positions >= g.shape[1] // module.groups and (_in_blocks(module) or positions >= MANY_POSITIONS)

    def gradients(self, module: nn.Module, g: Tensor) -> Tensor:
        assert isinstance(module, self.types)
        g, parts = _without_parts(module, g)
        positions: Tensor = g.flatten(2).unflatten(1, (module.groups, -1))  # (N, H, G / H, S)
        return _with_parts(positions.permute(1, 0, 3, 2), parts)


def _without_parts(module: nn.Module, x: Tensor) -> tuple[Tensor, int | None]:  # (N, k, ...) -> (N * k, ...)
    """Return images of which some are parts of one example as examples of their own, and how many parts one has."""
    assert isinstance(module, Convolution)
    return (x.flatten(0, 1), x.shape[1]) if x.dim() > len(module.kernel_size) + 2 else (x, None)


def _with_parts(x: Tensor, parts: int | None) -> Tensor:  # (H, N * k, S, A) -> (H, N, k * S, A)
    return x if parts is None else x.unflatten(1, (-1, parts)).flatten(2, 3)


def _channels_lie_last(x: Tensor) -> bool:  # (N, A, ...)
    """Whether the channels of a position lie side by side in memory."""
    return x.dim() > 2 and x.shape[1] > 1 and x.stride(1) == 1 and not x.is_contiguous()


def convolved(module: Convolution, x: Tensor, g: Tensor) -> Tensor:  # (N, ...), (N, ...) -> (N, G, A)
    """Return ∇ of every example by convolutions of which each example is a group: nothing is unfolded."""
    dims, padding = len(module.kernel_size), module.padding
    if isinstance(padding, str) or module.padding_mode != "zeros":
        x, padding = _pad(module, x), (0,) * dims
    size = len(x) if _in_blocks(module) else 1  # examples of odd channels are faster one by one
    parts = []
    for inputs, outputs in zip(x.split(size), g.split(size), strict=True):
        count = len(inputs)
        _, formed, _ = torch.ops.aten.convolution_backward(
            outputs.reshape(1, -1, *g.shape[2:]),
            inputs.reshape(1, -1, *x.shape[2:]),
            x.new_empty(count * g.shape[1], *module.weight.shape[1:]),  # of which the shape alone is used
            None,
            module.stride,
            padding,
            module.dilation,
            False,
            [0] * dims,
            count * module.groups,
            [False, True, False],
        )
        parts.append(formed.reshape(count, g.shape[1], -1))
    matrices = parts[0] if len(parts) == 1 else torch.cat(parts)
    return matrices if module.bias is None else torch.cat([matrices, g.flatten(2).sum(2, keepdim=True)], dim=2)


def _in_blocks(module: Convolution) -> bool:
    """Whether oneDNN takes all channels of a group at a time; it has a way of its own for groups of one."""
    sizes = module.in_channels // module.groups, module.out_channels // module.groups
    return sizes == (1, 1) or all(size % CHANNELS == 0 for size in sizes)


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
