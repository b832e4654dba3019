"""Hooks on the layers of a network for the time of a block."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from infoform.network.layer import Layer

Hook = Callable[..., Any]  # of module, args, kwargs and output; what it returns, if not None, takes the output's place


@contextmanager
def hooked(layers: Mapping[str, Layer], hook_of: Callable[[str, Layer], Hook]) -> Iterator[None]:
    """Call a hook after every call of these layers, and before the user's own hooks, which may change the output.

    Args:
        layers: Layers by name.
        hook_of: Makes the hook of a layer.
    """
    handles = [
        module.register_forward_hook(hook_of(name, layer), with_kwargs=True, prepend=True)
        for name, layer in layers.items()
        for module in layer.modules
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
