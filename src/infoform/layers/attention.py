"""The projections of `nn.MultiheadAttention`, which it computes by a function and not by modules that could be tapped.

    q = W_q x_q + b_q,    k = W_k x_k + b_k,    v = W_v x_v + b_v

The three weights lie below each other in one matrix, as torch packs them. Where queries, keys and values are not the
same, each of them is one more use of the matrix, with gradients of zero in the rows of the others; where they differ in
length, columns are filled up with zeros. A call of a projection is seen as one of a small module that stands for these
rows. torch's own function computes the attention, with its linear maps replaced by these modules (`by_parts`).
"""

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from torch.overrides import TorchFunctionMode

from infoform.layers.linear import LinearRule, with_ones

SEPARATE = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
_PROJECTIONS: "WeakKeyDictionary[nn.MultiheadAttention, dict[tuple[int, int], InProjection]]" = WeakKeyDictionary()


class InProjection(nn.Module):
    """Some thirds of the in-projection of an attention: (0, 3) for all of it, (1, 2) for the keys."""

    def __init__(self, owner: nn.MultiheadAttention, thirds: tuple[int, int]) -> None:
        super().__init__()
        self._owner, self.thirds = weakref.ref(owner), thirds

    @property
    def owner(self) -> nn.MultiheadAttention:
        found = self._owner()
        assert found is not None
        return found

    @property
    def rows(self) -> slice:
        """Return which rows of the whole matrix they are."""
        return slice(*(third * self.owner.embed_dim for third in self.thirds))

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return functional.linear(x, weight, bias)

    def __reduce__(self) -> tuple[Any, ...]:
        return in_projection, (self.owner, self.thirds)


def in_projection(owner: nn.MultiheadAttention, thirds: tuple[int, int] = (0, 3)) -> InProjection:
    """Return what stands for a part of an attention's in-projection: always the same for the same attention."""
    known = _PROJECTIONS.setdefault(owner, {})
    return known[thirds] if thirds in known else known.setdefault(thirds, InProjection(owner, thirds))


def in_projections(owner: nn.MultiheadAttention) -> tuple[InProjection, ...]:
    """Return all that torch's function may call, the whole one first."""
    return tuple(in_projection(owner, thirds) for thirds in ((0, 3), (0, 1), (1, 3), (1, 2), (2, 3)))


def all_projections(model: nn.Module) -> Iterator[nn.Module]:
    """Give the projections of all attentions of a model."""
    for module in model.modules():
        if isinstance(module, nn.MultiheadAttention):
            yield in_projection(module)
            yield module.out_proj


class InProjectionRule(LinearRule):
    """The in-projection of an attention, packed or of three weights, with its bias as last column."""

    types: ClassVar[tuple[type[nn.Module], ...]] = (nn.MultiheadAttention,)

    def applies(self, module: nn.Module) -> bool:
        return isinstance(module, InProjection)

    def parameter_names(self, module: nn.Module) -> set[str]:
        owner = _owner(module)
        weights = SEPARATE if owner.in_proj_weight is None else ("in_proj_weight",)
        return {*weights} if owner.in_proj_bias is None else {*weights, "in_proj_bias"}

    def shape(self, module: nn.Module) -> tuple[int, int]:
        owner = _owner(module)
        return 3 * owner.embed_dim, _width(owner) + (owner.in_proj_bias is not None)

    def matrix(self, module: nn.Module) -> Tensor:
        owner = _owner(module)
        if owner.in_proj_weight is not None:
            parts = [owner.in_proj_weight.detach()]
        else:
            thirds = [getattr(owner, name).detach() for name in SEPARATE]
            parts = [torch.cat([functional.pad(one, (0, _width(owner) - one.shape[1])) for one in thirds])]
        bias = owner.in_proj_bias
        return torch.cat(parts if bias is None else [*parts, bias.detach().unsqueeze(1)], dim=1)

    def parameters(self, module: nn.Module, matrix: Tensor) -> dict[str, Tensor]:
        owner, width = _owner(module), _width(_owner(module))
        cut = {} if owner.in_proj_bias is None else {"in_proj_bias": matrix[..., -1]}
        weight = matrix[..., :width]
        if owner.in_proj_weight is not None:
            return {"in_proj_weight": weight, **cut}
        thirds = weight.unflatten(-2, (3, -1)).unbind(-3)
        return {
            name: one[..., : getattr(owner, name).shape[1]] for name, one in zip(SEPARATE, thirds, strict=True)
        } | cut

    def inputs(self, module: nn.Module, x: Tensor) -> Tensor:
        owner = _owner(module)
        x = x.reshape(1, x.shape[0], -1, x.shape[-1])
        missing = _width(owner) - x.shape[-1]
        x = functional.pad(x, (0, missing)) if missing else x
        return x if owner.in_proj_bias is None else with_ones(x)

    def gradients(self, module: nn.Module, g: Tensor) -> Tensor:
        assert isinstance(module, InProjection)
        found = super().gradients(module, g)
        if module.thirds == (0, 3):
            return found
        rows, whole = module.rows, 3 * module.owner.embed_dim
        return functional.pad(found, (rows.start, whole - rows.stop))

    def write_rows(self, module: nn.Module, x: Tensor, out: Tensor) -> None:
        out.copy_(self.inputs(module, x)[0, :, 0])


def _owner(module: nn.Module) -> nn.MultiheadAttention:
    return module.owner if isinstance(module, InProjection) else module  # type: ignore[return-value]


def _width(owner: nn.MultiheadAttention) -> int:
    """Return the number of columns of the weights, or of the widest of three."""
    return max(int(owner.embed_dim), int(owner.kdim), int(owner.vdim))


@contextmanager
def seen_projections(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Have attentions call modules for their projections, which hooks then see, for the time of the block.

    Args:
        modules: Modules that have hooks, of which those that are projections of an attention count.
    """
    seen = [one for one in modules if isinstance(one, InProjection | NonDynamicallyQuantizableLinear)]
    if not seen:
        yield
        return
    _SEEN.modules.append(seen)
    try:
        with _ByParts():
            yield
    finally:
        _SEEN.modules.remove(seen)


class _Seen(threading.local):
    """The projections that blocks of this thread look at."""

    def __init__(self) -> None:
        self.modules: list[list[InProjection | NonDynamicallyQuantizableLinear]] = []


_SEEN = _Seen()


class _ByParts(TorchFunctionMode):
    """Calls torch's function for attention with other linear maps."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is not functional.multi_head_attention_forward:
            return func(*args, **kwargs)
        query: Tensor = args[0] if args else kwargs["query"]
        return by_parts(_Linear(query))(*args, **kwargs)


class _Linear:
    """Takes the place of `linear` in one call of an attention: puts the examples first, and calls a module."""

    def __init__(self, query: Tensor) -> None:
        self._examples = query.shape[1] if query.dim() == 3 else 1
        self._modules = [module for modules in _SEEN.modules for module in modules]

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        for module in self._modules:
            if isinstance(module, InProjection):
                thirds = _thirds_of(module.owner, weight)
                if thirds is not None:
                    found: Tensor = in_projection(module.owner, thirds)(x.transpose(0, 1), weight, bias)
                    # torch takes views of the three that it asks for one by one
                    return found.transpose(0, 1) if thirds == (0, 3) else found.transpose(0, 1).contiguous()
            elif weight is module.weight and bias is module.bias:
                tokens: Tensor = module(x.unflatten(0, (-1, self._examples)).transpose(0, 1))  # (T * N, E)
                return tokens.transpose(0, 1).flatten(0, 1)
        return functional.linear(x, weight, bias)


def _thirds_of(owner: nn.MultiheadAttention, weight: Tensor) -> tuple[int, int] | None:
    """Say which thirds of an attention's in-projection a weight is."""
    if owner.in_proj_weight is None:
        place = next((place for place, name in enumerate(SEPARATE) if getattr(owner, name) is weight), None)
        return None if place is None else (place, place + 1)
    whole, size = owner.in_proj_weight, owner.embed_dim
    if weight is whole:
        return 0, 3
    if weight.untyped_storage()._cdata != whole.untyped_storage()._cdata or weight.shape[1:] != whole.shape[1:]:
        return None
    first = (weight.storage_offset() - whole.storage_offset()) // whole.stride(0) // size
    return first, first + len(weight) // size


def by_parts(linear: Callable[..., Tensor]) -> Callable[..., Any]:
    """Return torch's function for attention, line by line, with another `linear` in it.

    Args:
        linear: What it calls for its projections.
    """
    own = functional.multi_head_attention_forward
    replaced: dict[str, Any] = {**own.__globals__, "linear": linear, "has_torch_function": _never}
    for name in ("_in_projection_packed", "_in_projection"):
        replaced[name] = _with_globals(own.__globals__[name], replaced)
    return _with_globals(own, replaced)


def _with_globals(function: Any, names: dict[str, Any]) -> FunctionType:
    made = FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _never(_: Any) -> bool:
    return False
