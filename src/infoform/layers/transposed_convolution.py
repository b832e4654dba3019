"""Transposed convolutions: what a convolution of stride 1 does to the input with zeros between its positions.

    y_o(q) = Σ_i,k w_iok x_i(p) + b_o,    over all p, k with q = p · stride + k · dilation − padding

So output positions share the weight, patches are of the widened input, and the kernel is read backwards.
"""

import math
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from infoform.layers.base import LayerRule, pool_positions

TransposedConvolution = nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d


class TransposedConvolutionRule(LayerRule):
    """`nn.ConvTranspose1d/2d/3d` with any stride, padding, output padding, dilation and groups."""

    types: ClassVar[tuple[type[TransposedConvolution], ...]] = (
        nn.ConvTranspose1d,
        nn.ConvTranspose2d,
        nn.ConvTranspose3d,
    )

    def shape(self, module: nn.Module) -> tuple[int, int]:
        assert isinstance(module, self.types)
        each = module.in_channels // module.groups * math.prod(module.kernel_size)
        return module.out_channels, each + (module.bias is not None)

    def matrix(self, module: nn.Module) -> Tensor:
        assert isinstance(module, self.types)
        by_group = module.weight.detach().unflatten(0, (module.groups, -1))  # (H, C / H, G / H, *kernel)
        weight = by_group.transpose(1, 2).flatten(0, 1).flatten(1)
        return weight if module.bias is None else torch.cat([weight, module.bias.detach().unsqueeze(1)], dim=1)

    def parameters(self, module: nn.Module, matrix: Tensor) -> dict[str, Tensor]:
        assert isinstance(module, self.types)
        each = module.in_channels // module.groups
        weight = matrix if module.bias is None else matrix[..., :-1]
        weight = weight.unflatten(-1, (each, -1)).unflatten(-3, (module.groups, -1))  # (..., H, G / H, C / H, K)
        weight = weight.transpose(-3, -2).flatten(-4, -3)
        cut = {"weight": weight.reshape(*weight.shape[:-1], *module.kernel_size)}
        return cut if module.bias is None else cut | {"bias": matrix[..., -1]}

    def inputs(self, module: nn.Module, x: Tensor) -> Tensor:
        assert isinstance(module, self.types)
        dims = len(module.kernel_size)
        x, parts = (x.flatten(0, 1), x.shape[1]) if x.dim() > dims + 2 else (x, None)
        x = _widened(module, x)
        for axis, (size, dilation) in enumerate(zip(module.kernel_size, module.dilation, strict=True), start=2):
            x = x.unfold(axis, dilation * (size - 1) + 1, 1)[..., ::dilation]
        x = x.flip(*range(2 + dims, 2 + 2 * dims))
        # (N, C, *positions, *kernel) -> (H, N, S, A)
        x = x.unflatten(1, (module.groups, -1))
        x = x.permute(1, 0, *range(3, 3 + dims), 2, *range(3 + dims, 3 + 2 * dims))
        patches = x.flatten(2 + dims).flatten(2, 1 + dims)
        patches = patches if parts is None else patches.unflatten(1, (-1, parts)).flatten(2, 3)
        return patches if module.bias is None else functional.pad(patches, (0, 1), value=1.0)

    def gradients(self, module: nn.Module, g: Tensor) -> Tensor:
        assert isinstance(module, self.types)
        g, parts = (g.flatten(0, 1), g.shape[1]) if g.dim() > len(module.kernel_size) + 2 else (g, None)
        by_group: Tensor = g.flatten(2).unflatten(1, (module.groups, -1))  # (N, H, G / H, S)
        rows = by_group.permute(1, 0, 3, 2)
        return rows if parts is None else rows.unflatten(1, (-1, parts)).flatten(2, 3)

    def pooled(self, module: nn.Module, x: Tensor, *, mask: Tensor | None = None) -> Tensor:
        return pool_positions(x.flatten(2).mT)


def _widened(module: TransposedConvolution, x: Tensor) -> Tensor:  # (N, C, ...)
    """Return the input with zeros between its positions, padded or cut so that each patch belongs to one output."""
    pads: list[int] = []
    for axis, stride in enumerate(module.stride):
        size = x.shape[2 + axis]
        wide = x.new_zeros(*x.shape[: 2 + axis], (size - 1) * stride + 1, *x.shape[3 + axis :])
        wide[(slice(None),) * (2 + axis) + (slice(None, None, stride),)] = x
        x = wide
        padding = module.padding[axis]
        assert isinstance(padding, int)
        reach = module.dilation[axis] * (module.kernel_size[axis] - 1) - padding
        pads = [reach, reach + module.output_padding[axis], *pads]
    return functional.pad(x, pads)
