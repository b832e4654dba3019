"""Linear layers, on vectors (S = 1) or with the weight shared over tokens or positions."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from infoform.common.matmul import aligned
from infoform.layers.base import LayerRule, pool_positions


class LinearRule(LayerRule):
    """`nn.Linear`: every axis between the batch and the features is a shared position."""

    types: ClassVar[tuple[type[nn.Module], ...]] = (nn.Linear,)
    runs_batched: ClassVar[bool] = True

    def inputs(self, module: nn.Module, x: Tensor) -> Tensor:
        x = x.reshape(1, x.shape[0], -1, x.shape[-1])
        return x if module.bias is None else with_ones(x)

    def write_rows(self, module: nn.Module, x: Tensor, out: Tensor) -> None:
        _write(x.reshape(len(x), x.shape[-1]), out)

    def pooled(self, module: nn.Module, x: Tensor, *, mask: Tensor | None = None) -> Tensor:
        if x.dim() == 2:
            return x
        return pool_positions(x.reshape(len(x), -1, x.shape[-1]), mask=mask)

    def gradients(self, module: nn.Module, g: Tensor) -> Tensor:
        return g.reshape(1, g.shape[0], -1, g.shape[-1])


def with_ones(x: Tensor) -> Tensor:  # (..., A) -> (..., A + 1)
    """Return inputs with the bias's 1 as last column, in rows that products are fast with."""
    if torch.compiler.is_exporting():  # ExecuTorch allocates memory for a fixed number of examples alone
        return torch.cat([x, torch.ones_like(x[..., :1])], dim=-1)
    extended = aligned(x, *x.shape[:-1], x.shape[-1] + 1)
    _write(x, extended)
    return extended


def _write(x: Tensor, out: Tensor) -> None:  # (..., A) or (..., A - 1), then with a bias, whose input is 1
    out[..., : x.shape[-1]] = x
    out[..., x.shape[-1] :] = 1
