"""Hooks on the layers of a network for the time of a block."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn

from infoform.layers.attention import seen_projections
from infoform.network.layer import Layer

Hook = Callable[..., Any]  # of module, args, kwargs and output; what it returns, if not None, takes the output's place


@contextmanager
def hooked(layers: Mapping[str, Layer], hook_of: Callable[[str, Layer], Hook]) -> Iterator[None]:
    """Call a hook after every call of these layers, and before the user's own hooks, which may change the output.

    Args:
        layers: Layers by name.
        hook_of: Makes the hook of a layer.
    """
    hooks = hooked_modules((m, hook_of(name, layer)) for name, layer in layers.items() for m in layer.modules)
    with hooks, seen_projections(module for layer in layers.values() for module in layer.modules):
        yield


@contextmanager
def hooked_modules(hooks: Iterable[tuple[nn.Module, Hook]]) -> Iterator[None]:
    """Call a hook after every call of a module, and before the user's own hooks.

    Args:
        hooks: Modules, each with its hook.
    """
    handles = [module.register_forward_hook(hook, with_kwargs=True, prepend=True) for module, hook in hooks]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
