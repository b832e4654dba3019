"""Modules with a forward of their own that scale and shift: found by a trial, not by their type.

Hugging Face's norms, timm's norms of images and scales of layers hold one vector, or two of the same length. Such a
module is run on random inputs. Where its output is linear in the vectors, element by element, it has a rule: with
f(x; p) for its output, f(x; p) = f(x; 0) + Σ_i p_i · h_i(x), and h_i(x) is f(x; 1 at i) − f(x; 0). A fit's self-check
looks at it once more, with the data.
"""

import copy
from typing import ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.func import functional_call

from infoform.layers.norm import ScaleRule, channels_last, vectors_of

MOST = 2  # vectors of a module
LAST, CHANNELS = "last", "channels"  # which axis the vectors lie along
_TRIED: "WeakKeyDictionary[nn.Module, str | None]" = WeakKeyDictionary()


class ScaleFunctionRule(ScaleRule):
    """A module that returns f(x; 0) + Σ_i p_i · h_i(x), with vectors p_i along the last axis or along the channels."""

    types: ClassVar[tuple[type[nn.Module], ...]] = ()

    def applies(self, module: nn.Module) -> bool:
        return _tried(module) is not None

    def factors(self, module: nn.Module, x: Tensor) -> list[Tensor | None]:
        with torch.no_grad():
            return list(_factors(module, x))

    def to_elements(self, module: nn.Module, x: Tensor) -> Tensor:
        if _tried(module) == LAST:
            return x.reshape(len(x), -1, x.shape[-1])
        return channels_last(x)


def _factors(module: nn.Module, x: Tensor) -> list[Tensor]:
    """Return h_i(x) for each vector."""
    own = {name: one.detach() for name, one in vectors_of(module).items()}
    zeros = {name: torch.zeros_like(one) for name, one in own.items()}
    nothing = _run(module, zeros, x)
    return [_run(module, zeros | {name: torch.ones_like(one)}, x) - nothing for name, one in own.items()]


def _run(module: nn.Module, vectors: dict[str, Tensor], x: Tensor) -> Tensor:
    found = functional_call(_Forward(module), {f"of.{name}": one for name, one in vectors.items()}, (x,))
    if not isinstance(found, Tensor) or found.shape != x.shape:
        raise TypeError("the module does not return what it gets in, scaled and shifted.")
    return found


class _Forward(nn.Module):
    """Calls a module's forward alone: a hook that watches the module must not see it."""

    def __init__(self, of: nn.Module) -> None:
        super().__init__()
        self.of = of

    def forward(self, x: Tensor) -> Tensor:
        return self.of.forward(x)  # type: ignore[no-any-return]


def _tried(module: nn.Module) -> str | None:
    """Return the axis along which a module scales and shifts, or None where it does something else."""
    if not _may_scale(module):
        return None
    if module not in _TRIED:
        _TRIED[module] = next((axis for axis in (LAST, CHANNELS) if _scales(module, axis)), None)
    return _TRIED[module]


def _may_scale(module: nn.Module) -> bool:
    own = vectors_of(module)
    if not 1 <= len(own) <= MOST or any(True for _ in module.children()) or isinstance(module, torch.jit.ScriptModule):
        return False
    return (
        all(one.dim() == 1 and one.is_floating_point() and not one.is_meta and len(one) > 1 for one in own.values())
        and len({len(one) for one in own.values()}) == 1
    )


def _scales(module: nn.Module, axis: str) -> bool:
    generator = torch.Generator().manual_seed(0)
    tried = copy.copy(module)  # shares parameters; what a forward pass writes to attributes or buffers goes to copies
    tried.__dict__.update({name: dict(tried.__dict__[name]) for name in ("_parameters", "_buffers")})
    for name, one in tried._buffers.items():
        tried._buffers[name] = None if one is None else one.clone()
    tried.training = False
    own = vectors_of(tried)
    like = next(iter(own.values()))
    shape = (2, 3, len(like)) if axis == LAST else (2, len(like), 3, 5)
    try:
        with torch.no_grad():
            x = torch.randn(shape, generator=generator, dtype=torch.float64).to(like)
            known = _factors(tried, x)
            vectors = {
                name: torch.randn(len(one), generator=generator, dtype=torch.float64).to(one)
                for name, one in own.items()
            }
            expected = _run(tried, {name: torch.zeros_like(one) for name, one in own.items()}, x)
            for one, factor in zip(vectors.values(), known, strict=True):
                expected = expected + factor * (one if axis == LAST else one[:, None, None])
            returned = _run(tried, vectors, x)
    except Exception:  # any error says that the module takes other inputs
        return False
    return torch.allclose(returned, expected, rtol=1e-2, atol=1e-2 * float(expected.abs().max()))
