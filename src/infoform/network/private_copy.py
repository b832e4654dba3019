"""A copy of a model's modules, in evaluation mode, that shares every tensor with it; hooks set there leave it alone.

Several threads may predict with one model, each with modules of its own. A module is copied by its dictionary of
attributes; what leads from there to other modules (lists, bound methods) leads to their copies. Where an attribute
leads to a module in a way that cannot be copied, such as a closure, the model itself is used, by one thread at a time.
"""

import functools
import threading
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch
from torch import Tensor, fx, nn

from infoform.layers.attention import InProjection, in_projection
from infoform.layers.parameter import ParameterUse, parameter_use
from infoform.network.plain_run import plain_run

DEEPEST = 4  # steps from an attribute on that are looked at for a module
LONGEST = 1000  # members of a container that are looked at
_PLAIN = (Tensor, str, bytes, int, float, complex, type, Enum, torch.dtype, torch.device, types.ModuleType, fx.Graph)
_CONTAINERS = (list, tuple, set, dict, OrderedDict)  # of exactly these types, so that they can be made anew
_OWN = frozenset(
    [
        "_parameters",
        "_buffers",
        "_modules",
        "_forward_hooks",
        "_forward_hooks_with_kwargs",
        "_forward_hooks_always_called",
        "_forward_pre_hooks",
        "_forward_pre_hooks_with_kwargs",
    ]
)  # dictionaries that every module has, and that are written while a network is looked at

_ONE_AT_A_TIME: "weakref.WeakKeyDictionary[nn.Module, threading.RLock]" = weakref.WeakKeyDictionary()
_MAKING_LOCKS = threading.Lock()


@dataclass(frozen=True)
class ModelCopy:
    """A model to work with, and its modules by those of the user's model."""

    model: nn.Module
    modules: Mapping[nn.Module, nn.Module]  # empty where the model is the user's own

    def of(self, module: nn.Module) -> nn.Module:
        """Return what takes the place of a module of the user's model."""
        if isinstance(module, InProjection):
            return in_projection(self.of(module.owner), module.thirds)  # type: ignore[arg-type]
        if isinstance(module, ParameterUse):
            return parameter_use(self.of(module.owner), module.key)
        return self.modules.get(module, module)


@dataclass
class PrivateCopies:
    """Gives copies of a model, one for each use."""

    model: nn.Module
    joined: Callable[[Any], Tensor] | None = None  # makes one tensor of what the model returns, where that is several
    _recipes: dict[nn.Module, "_Recipe"] = field(default_factory=dict)

    @property
    def possible(self) -> bool:
        """Whether the model can be copied."""
        return self._copied() is not None

    @contextmanager
    def private(self) -> Iterator[ModelCopy]:
        """Give modules that nobody else uses in the block: a copy, or the model itself, which others then wait for."""
        copy = self._copied()
        with plain_run(self.model), nullcontext() if copy is not None else _lock_of(self.model):
            found = copy if copy is not None else ModelCopy(self.model, {})
            with nullcontext() if self.joined is None else _joining(found.model, self.joined):
                yield found

    def _copied(self) -> ModelCopy | None:
        originals = list(self.model.modules())
        recipes = self._recipes
        if len(recipes) != len(originals) or any(
            module not in recipes or recipes[module].attributes != len(module.__dict__) for module in originals
        ):
            recipes = self._recipes = _recipes_of(originals)
        if any(recipe.mapped is None for recipe in recipes.values()):
            return None
        copies: dict[nn.Module, nn.Module] = {module: object.__new__(type(module)) for module in originals}
        for module, copy in copies.items():
            attributes = module.__dict__.copy()
            attributes["training"] = False
            for name in _OWN:
                attributes[name] = attributes[name].copy()
            children = attributes["_modules"]
            for name, child in children.items():
                if child is not None:
                    children[name] = copies[child]
            for name in recipes[module].mapped or ():
                attributes[name] = _mapped(attributes[name], copies)
            copy.__dict__.update(attributes)
        return ModelCopy(copies[self.model], copies)


@dataclass(frozen=True)
class _Recipe:
    """How to copy one module: which attributes lead to other modules."""

    attributes: int  # how many there were
    mapped: tuple[str, ...] | None  # None where the module cannot be copied


def _recipes_of(originals: list[nn.Module]) -> dict[nn.Module, _Recipe]:
    known = set(originals)
    return {module: _Recipe(len(module.__dict__), _attributes_to_map(module, known)) for module in originals}


def _attributes_to_map(module: nn.Module, known: set[nn.Module]) -> tuple[str, ...] | None:
    if isinstance(module, torch.jit.ScriptModule) or not module.__dict__.keys() >= _OWN or _has_slots(type(module)):
        return None
    mapped = []
    for name, value in module.__dict__.items():
        if name in ("_parameters", "_buffers", "_modules") or not _leads(value, known, DEEPEST):
            continue
        if not _can_be_mapped(value, known, DEEPEST):
            return None
        mapped.append(name)
    return tuple(mapped)


def _has_slots(kind: type) -> bool:
    return any(getattr(base, "__slots__", ()) for base in kind.__mro__ if base is not object and base is not nn.Module)


def _leads(value: object, known: set[nn.Module], steps: int) -> bool:
    """Whether a module of the model can be reached from this value."""
    if value is None or isinstance(value, _PLAIN):
        return False
    if isinstance(value, nn.Module):
        return _is_proxy(value) or value in known
    return steps > 0 and any(_leads(one, known, steps - 1) for one in _members(value))


def _is_proxy(value: object) -> bool:
    return type(value) in weakref.ProxyTypes  # it passes for a module, but has no hash


def _members(value: object) -> list[Any]:
    """Return what a value holds, as far as that is looked at."""
    if isinstance(value, dict):
        return list(value.values())[:LONGEST]
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value)[:LONGEST]
    if isinstance(value, types.MethodType):
        return [value.__self__, value.__func__]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, types.FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
        return [*cells, *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values(), *vars(value).values()]
    if isinstance(value, weakref.ref):
        return [value()]
    return list(getattr(value, "__dict__", {}).values())[:LONGEST]


def _is_filled(cell: types.CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def _can_be_mapped(value: object, known: set[nn.Module], steps: int) -> bool:
    """Whether `_mapped` can make another of a value that leads to a module."""
    if _is_proxy(value):
        return False
    if isinstance(value, nn.Module) or not _leads(value, known, steps):
        return True
    makes = type(value) in _CONTAINERS or isinstance(value, types.MethodType) or type(value) is functools.partial
    return makes and all(_can_be_mapped(one, known, steps - 1) for one in _members(value))


def _mapped(value: Any, copies: Mapping[nn.Module, nn.Module]) -> Any:
    """Return the value with copies in the place of modules."""
    if isinstance(value, nn.Module):
        return copies.get(value, value)
    if isinstance(value, types.MethodType):
        return types.MethodType(value.__func__, _mapped(value.__self__, copies))
    if type(value) is functools.partial:
        keywords = {key: _mapped(one, copies) for key, one in value.keywords.items()}
        made = functools.partial(_mapped(value.func, copies), *(_mapped(one, copies) for one in value.args), **keywords)
        made.__dict__.update(value.__dict__)
        return made
    if isinstance(value, dict) and type(value) in _CONTAINERS:
        return type(value)((key, _mapped(one, copies)) for key, one in value.items())
    if type(value) in _CONTAINERS:
        return type(value)(_mapped(one, copies) for one in value)
    return value


@contextmanager
def _joining(model: nn.Module, joined: Callable[[Any], Tensor]) -> Iterator[None]:
    handle = model.register_forward_hook(lambda module, inputs, outputs: joined(outputs))
    try:
        yield
    finally:
        handle.remove()


def _lock_of(model: nn.Module) -> threading.RLock:
    with _MAKING_LOCKS:
        return _ONE_AT_A_TIME.setdefault(model, threading.RLock())
