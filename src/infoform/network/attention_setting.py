"""How torch computes attention: two settings of the whole process that an operation may need otherwise.

`torch.vmap` and forward-mode differentiation have rules for attention by plain products alone, and encoder layers with
their fast path on never call the layers inside them. Results differ in the last digits between one way and another, so
a thread that predicts must not see what another one has set.
"""

import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FunctionType

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from infoform.common.shared_modes import SharedModes

FUNCTION = "scaled_dot_product_attention"


def own_attention(model: nn.Module) -> AbstractContextManager[None]:
    """Run a model as it runs by itself; inside of the two others as these say."""
    return _MODES.held("own") if has_attention(model) else nullcontext()


def unfused_encoder(model: nn.Module) -> AbstractContextManager[None]:
    """Run nn.TransformerEncoderLayer by its parts: its fused kernel never calls the linear layers inside it."""
    return _MODES.held("unfused") if has_attention(model) else nullcontext()


def plain_attention() -> AbstractContextManager[None]:
    """Compute attention by plain products, encoder layers by their parts."""
    return _MODES.held("plain")


def has_attention(model: nn.Module) -> bool:
    """Whether a part of the model is called attention, or calls torch's function for it."""
    known = _KNOWN.get(model)
    if known is None:
        known = _KNOWN[model] = any(map(_is_attention, {type(module) for module in model.modules()}))
    return known


def _is_attention(kind: type) -> bool:
    methods = (one for base in kind.__mro__ for one in vars(base).values() if isinstance(one, FunctionType))
    return "attention" in kind.__name__.lower() or any(FUNCTION in one.__code__.co_names for one in methods)


@contextmanager
def _without_fast_path() -> Iterator[None]:
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)


@contextmanager
def _by_plain_products() -> Iterator[None]:
    with _without_fast_path(), sdpa_kernel(SDPBackend.MATH):
        yield


# torch has one of each setting for all threads
_MODES = SharedModes({"own": nullcontext, "unfused": _without_fast_path, "plain": _by_plain_products})
_KNOWN: "weakref.WeakKeyDictionary[nn.Module, bool]" = weakref.WeakKeyDictionary()
