"""Modules with a forward of their own that compute what `nn.Linear` does: found by a trial, not by their type.

timm and PyTorch Geometric have a `Linear` of their own, and GPT-2's `Conv1D` holds the transposed weight. A module with
a matrix `weight`, perhaps a vector `bias`, and nothing else is run on random inputs; where it returns x Wᵀ + b, or
x W + b, it has a rule. A fit's self-check looks at it once more, with the data.
"""

from typing import ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional

from infoform.layers.linear import LinearRule

TRIALS = (1.0, -30.0)  # sizes of the inputs: of a nonlinear function they would show
_TRIED: "WeakKeyDictionary[nn.Module, tuple[bool, bool]]" = WeakKeyDictionary()  # by module: as it is, transposed


class LinearFunctionRule(LinearRule):
    """A module that returns x Wᵀ + b."""

    types: ClassVar[tuple[type[nn.Module], ...]] = ()

    def applies(self, module: nn.Module) -> bool:
        return _tried(module)[0]


class TransposedLinearRule(LinearRule):
    """A module that returns x W + b, as GPT-2's `Conv1D`."""

    types: ClassVar[tuple[type[nn.Module], ...]] = ()

    def applies(self, module: nn.Module) -> bool:
        return _tried(module)[1]

    def shape(self, module: nn.Module) -> tuple[int, int]:
        return self.matrix(module).shape  # type: ignore[return-value]

    def matrix(self, module: nn.Module) -> Tensor:
        weight, bias = _parameters(module)
        columns = [weight.detach().T] if bias is None else [weight.detach().T, bias.detach().unsqueeze(1)]
        return torch.cat(columns, dim=1)

    def parameters(self, module: nn.Module, matrix: Tensor) -> dict[str, Tensor]:
        if module.bias is None:
            return {"weight": matrix.mT}
        return {"weight": matrix[..., :-1].mT, "bias": matrix[..., -1]}


def _parameters(module: nn.Module) -> tuple[Tensor, Tensor | None]:
    weight, bias = module.weight, module.bias
    assert isinstance(weight, Tensor)
    assert bias is None or isinstance(bias, Tensor)
    return weight, bias


def _tried(module: nn.Module) -> tuple[bool, bool]:
    """Say whether a module returns x Wᵀ + b, and whether x W + b, as far as a trial tells."""
    if not _may_be_linear(module):
        return False, False
    if module not in _TRIED:
        weight, bias = _parameters(module)
        # of a square matrix that is its own transpose both would do: the first rule is taken
        _TRIED[module] = _returns(module, weight, bias), _returns(module, weight.T, bias)
    return _TRIED[module]


def _may_be_linear(module: nn.Module) -> bool:
    own = dict(module.named_parameters())
    if not own.keys() <= {"weight", "bias"} or "weight" not in own or own["weight"].dim() != 2:
        return False
    weight, others = own["weight"], nn.Embedding | nn.EmbeddingBag | nn.Bilinear | torch.jit.ScriptModule
    if not weight.is_floating_point() or weight.is_meta or ("bias" in own and own["bias"].dim() != 1):
        return False
    if any(True for _ in module.buffers()) or not hasattr(module, "bias") or isinstance(module, others):
        return False
    return type(module).forward is not nn.Linear.forward


def _returns(module: nn.Module, weight: Tensor, bias: Tensor | None) -> bool:
    if bias is not None and len(bias) != len(weight):
        return False
    generator = torch.Generator().manual_seed(0)
    try:
        with torch.no_grad():
            for size in TRIALS:
                x = size * torch.randn(2, 3, weight.shape[1], generator=generator, dtype=torch.float64).to(weight)
                expected, returned = functional.linear(x, weight, bias), module.forward(x)
                if not isinstance(returned, Tensor) or returned.shape != expected.shape:
                    return False
                if not torch.allclose(returned, expected, rtol=1e-2, atol=1e-2 * float(expected.abs().max())):
                    return False
    except Exception:  # any error says that the module takes other inputs
        return False
    return True
