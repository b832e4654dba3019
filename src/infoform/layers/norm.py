"""Scales and shifts of norms: y = γ·x̂ + β, element by element, with the same γ and β at every position.

    ∇γ = Σ_s g_s x̂_s,    ∇β = Σ_s g_s

In the format of the layers every element is a group of its own, with one output and with x̂ and 1 as its inputs. An
exact diagonal is all that is measured: a Kronecker factor would take as many numbers as the layer has pairs of weights.
"""

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from infoform.layers.base import LayerRule


class ScaleRule(LayerRule):
    """A module that is linear, element by element, in a vector or two: scale and shift, or one of them."""

    types: ClassVar[tuple[type[nn.Module], ...]] = ()
    by_default: ClassVar[bool] = False
    only_diagonal: ClassVar[bool] = True

    @abstractmethod
    def factors(self, module: nn.Module, x: Tensor) -> list[Tensor | None]:  # (N, ...)
        """Return what each vector is multiplied with, in the shape of the output; None for 1."""

    @abstractmethod
    def to_elements(self, module: nn.Module, x: Tensor) -> Tensor:  # (N, ...) -> (N, S, G)
        """Bring inputs, outputs or gradients into the order of positions and elements."""

    def applies(self, module: nn.Module) -> bool:
        return super().applies(module) and len(self.parameter_names(module)) > 0

    def parameter_names(self, module: nn.Module) -> set[str]:
        return set(vectors_of(module))

    def shape(self, module: nn.Module) -> tuple[int, int]:
        own = vectors_of(module)
        return next(iter(own.values())).numel(), len(own)

    def matrix(self, module: nn.Module) -> Tensor:
        return torch.stack([one.detach().flatten() for one in vectors_of(module).values()], dim=1)

    def parameters(self, module: nn.Module, matrix: Tensor) -> dict[str, Tensor]:
        own, leading = vectors_of(module), matrix.shape[:-2]
        return {name: matrix[..., index].reshape(leading + one.shape) for index, (name, one) in enumerate(own.items())}

    def inputs(self, module: nn.Module, x: Tensor) -> Tensor:
        known = self.factors(module, x)
        found = [self.to_elements(module, torch.ones_like(x) if one is None else one) for one in known]
        return torch.stack(found, dim=3).permute(2, 0, 1, 3)  # (G, N, S, 1 or 2)

    def gradients(self, module: nn.Module, g: Tensor) -> Tensor:
        return self.to_elements(module, g).permute(2, 0, 1).unsqueeze(3)

    def matrices(self, module: nn.Module, x: Tensor, g: Tensor) -> Tensor | None:
        known = self.factors(module, x)
        return torch.stack([self.to_elements(module, g if one is None else g * one).sum(1) for one in known], dim=2)

    def forms_matrices(self, module: nn.Module, g: Tensor) -> bool:
        return True


class NormRule(ScaleRule):
    """torch's norms with a scale; those with running statistics as they are in evaluation mode."""

    types: ClassVar[tuple[type[nn.Module], ...]] = (
        nn.LayerNorm,
        nn.RMSNorm,
        nn.BatchNorm1d,
        nn.BatchNorm2d,
        nn.BatchNorm3d,
        nn.SyncBatchNorm,
        nn.GroupNorm,
        nn.InstanceNorm1d,
        nn.InstanceNorm2d,
        nn.InstanceNorm3d,
    )

    def factors(self, module: nn.Module, x: Tensor) -> list[Tensor | None]:
        return [_normalised(module, x), None][: len(vectors_of(module))]

    def to_elements(self, module: nn.Module, x: Tensor) -> Tensor:
        if isinstance(module, nn.LayerNorm | nn.RMSNorm):
            dims = len(module.normalized_shape)
            return x.flatten(-dims).reshape(len(x), -1, x.shape[-dims:].numel())
        return channels_last(x)


def channels_last(x: Tensor) -> Tensor:  # (N, C, ...) -> (N, S, C)
    """Bring channels to the end; a view where the memory allows it."""
    return x.unsqueeze(1) if x.dim() == 2 else x.flatten(2).mT


def vectors_of(module: nn.Module) -> dict[str, Tensor]:
    """Return the parameters of the module itself, by name."""
    return dict(module.named_parameters(recurse=False))


def _normalised(module: nn.Module, x: Tensor) -> Tensor:
    """Return x̂: what the norm puts out without scale and shift."""
    if isinstance(module, nn.LayerNorm):
        return functional.layer_norm(x, module.normalized_shape, eps=module.eps)
    if isinstance(module, nn.RMSNorm):
        return functional.rms_norm(x, module.normalized_shape, eps=module.eps)
    if isinstance(module, nn.GroupNorm):
        return functional.group_norm(x, module.num_groups, eps=module.eps)
    assert isinstance(module, _BatchNorm | _InstanceNorm)
    mean, variance = module.running_mean, module.running_var
    if mean is None or variance is None:
        return functional.instance_norm(x, eps=module.eps)
    shape = (1, -1, *[1] * (x.dim() - 2))
    return (x - mean.view(shape).to(x)) * (variance + module.eps).rsqrt().view(shape).to(x)
