"""Convolutions in one, two and three dimensions: a linear map on patches, shared over the output's positions."""

from itertools import chain
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from infoform.layers.base import LayerRule, with_bias_column

Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d
LARGE = 2**24  # multiply-adds of an example's ∇ from which torch's own kernel, called for it alone, is worth the call


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
        # (N, H * C, *positions, *kernel) -> (H, N, S, C * kernel): the order of a flattened weight
        dims = len(module.kernel_size)
        x = x.unflatten(1, (module.groups, -1))
        x = x.permute(1, 0, *range(3, 3 + dims), 2, *range(3 + dims, 3 + 2 * dims))
        return with_bias_column(x.flatten(2 + dims).flatten(2, 1 + dims), module)

    def gradients(self, module: nn.Module, g: Tensor) -> Tensor:
        assert isinstance(module, self.TYPES)
        positions: Tensor = g.flatten(2).unflatten(1, (module.groups, -1))  # (N, H, G / H, S)
        return positions.permute(1, 0, 3, 2)

    def forms_gradients(self, module: nn.Module, positions: int) -> bool:
        assert isinstance(module, self.TYPES)
        outputs, inputs = self.shape(module)
        # with fewer positions than outputs the patches are small beside ∇ itself
        return positions > outputs // module.groups and positions * outputs * inputs >= LARGE

    def weight_gradients(self, module: nn.Module, x: Tensor, g: Tensor) -> Tensor:
        assert isinstance(module, self.TYPES)
        outputs, inputs = self.shape(module)
        x = _pad(module, x)
        gradients = x.new_empty(len(x), outputs, inputs)
        weights = gradients if module.bias is None else gradients[..., :-1]
        dims = len(module.kernel_size)
        like = module.weight.detach().to(x.dtype)
        for index, weight in enumerate(weights):
            one = slice(index, index + 1)
            found = torch.ops.aten.convolution_backward(
                g[one], x[one], like, None, module.stride, [0] * dims, module.dilation, False, [0] * dims,
                module.groups, [False, True, False],
            )[1]  # fmt: skip
            weight.copy_(found.flatten(1))
        if module.bias is not None:
            gradients[..., -1] = g.flatten(2).sum(2)
        return gradients


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
