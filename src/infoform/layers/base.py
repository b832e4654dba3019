"""What a layer type must tell: its weight as one matrix, its inputs and output gradients in one format.

    ∇ = Σ_s g_s a_sᵀ          inputs a (H, N, S, A), output gradients g (H, N, S, G / H), ∇ (N, G, A)

`H` counts the groups of a grouped convolution and is 1 everywhere else; group h owns rows h·G/H … of ∇.
The bias, where there is one, is the last column of the matrix, and its input is 1.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn


class LayerRule(ABC):
    """How one type of module becomes a linear map with shared weights; holds no state."""

    @abstractmethod
    def applies(self, module: nn.Module) -> bool:
        """Whether the module computes what this rule assumes (a subclass with its own forward may not)."""

    @abstractmethod
    def inputs(self, module: nn.Module, x: Tensor) -> Tensor:  # (N, ...) -> (H, N, S, A)
        """Return the inputs of the linear map, with the bias's 1 as last column."""

    @abstractmethod
    def gradients(self, module: nn.Module, g: Tensor) -> Tensor:  # (N, ...) -> (H, N, S, G / H)
        """Return the gradients of the layer's output, in the positions of `inputs`."""

    def matrices(self, module: nn.Module, x: Tensor, g: Tensor) -> Tensor | None:  # (N, ...), (N, ...) -> (N, G, A)
        """Return ∇ of every example, where there is a faster way than through `inputs`."""
        return None

    def forms_matrices(self, module: nn.Module, g: Tensor) -> bool:  # (N, ...)
        """Whether `matrices` does so for gradients like these."""
        return False

    def write_rows(self, module: nn.Module, x: Tensor, out: Tensor) -> None:  # (N, ...) -> (N, A)
        """Write the inputs of examples that use the weight once (H = S = 1)."""
        out.copy_(self.inputs(module, x)[0, :, 0])

    def shape(self, module: nn.Module) -> tuple[int, int]:
        """Return (G, A)."""
        weight = _weight(module)
        return weight.shape[0], weight[0].numel() + (module.bias is not None)

    def matrix(self, module: nn.Module) -> Tensor:  # (G, A)
        """Return the weights of the module as one matrix."""
        weight = _weight(module).detach().flatten(1)
        bias = module.bias
        return weight if bias is None else torch.cat([weight, _tensor(bias).detach().unsqueeze(1)], dim=1)

    def parameters(self, module: nn.Module, matrix: Tensor) -> dict[str, Tensor]:  # (..., G, A)
        """Cut a matrix of the layer's format back into the module's parameters."""
        shape = matrix.shape[:-1] + _weight(module).shape[1:]
        if module.bias is None:
            return {"weight": matrix.reshape(shape)}
        return {"weight": matrix[..., :-1].reshape(shape), "bias": matrix[..., -1]}


def _weight(module: nn.Module) -> Tensor:
    return _tensor(module.weight)


def _tensor(value: Tensor | nn.Module) -> Tensor:
    assert isinstance(value, Tensor)
    return value


def is_outer(inputs: Tensor) -> bool:  # (H, N, S, A), or the gradients in their places
    """Whether the weight is used once an example, so that ∇ has rank one."""
    return inputs.shape[0] == 1 and inputs.shape[2] == 1
