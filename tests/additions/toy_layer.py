"""A layer type from outside the package: a linear map whose parameters have names of their own."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from infoform.layers import LayerRule


class Affine(nn.Module):
    """y = slope x + shift."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5)
        self.shift = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.slope.T + self.shift


class AffineRule(LayerRule):
    """One matrix (slope, shift), whose last input is 1."""

    types: ClassVar[tuple[type[nn.Module], ...]] = (Affine,)

    def parameter_names(self, module: nn.Module) -> set[str]:
        return {"slope", "shift"}

    def inputs(self, module: nn.Module, x: Tensor) -> Tensor:
        rows = x.reshape(1, len(x), -1, x.shape[-1])
        return torch.cat([rows, torch.ones_like(rows[..., :1])], dim=-1)

    def gradients(self, module: nn.Module, g: Tensor) -> Tensor:
        return g.reshape(1, len(g), -1, g.shape[-1])

    def shape(self, module: nn.Module) -> tuple[int, int]:
        assert isinstance(module, Affine)
        return module.slope.shape[0], module.slope.shape[1] + 1

    def matrix(self, module: nn.Module) -> Tensor:
        assert isinstance(module, Affine)
        return torch.cat([module.slope, module.shift[:, None]], dim=1).detach()

    def parameters(self, module: nn.Module, matrix: Tensor) -> dict[str, Tensor]:
        return {"slope": matrix[..., :-1], "shift": matrix[..., -1]}
