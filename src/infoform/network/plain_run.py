"""Runs a model's modules as they are written: not compiled, and without gradient checkpoints.

A checkpoint runs layers again in the backward pass, when the parameters that a fit put in are gone.
"""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils import checkpoint

from infoform.common.shared_setting import SharedSetting

_COMPILER = "torch._dynamo.eval_frame"  # imported by torch.compile alone: it takes as long as the rest of torch
_COMPOSABLE = "torch.distributed._composable.checkpoint_activation"


def uncompiled(model: nn.Module) -> nn.Module:
    """Return the model that torch.compile was given, where it is a compiled one."""
    while _is_compiled(model):
        original = model._orig_mod
        assert isinstance(original, nn.Module)
        model = original
    return model


def check_has_values(model: nn.Module) -> None:
    """Raise if parameters or buffers are on the meta device, which has shapes alone."""
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.is_meta:
            raise ValueError(
                f"a fit needs the values of all parameters and buffers, and '{name}' is on the meta device; load them "
                "first: model.load_state_dict(state, assign=True). infoform.plan takes the model as it is."
            )


@contextmanager
def plain_run(model: nn.Module) -> Iterator[None]:
    """Run compiled parts of the model eagerly, and checkpoints as plain calls, for the time of the block."""
    with _eager(model), _UNCHECKPOINTED.held():
        yield


def _eager(model: nn.Module) -> AbstractContextManager[None]:
    compiled = any(
        _is_compiled(module) or getattr(module, "_compiled_call_impl", None) is not None for module in model.modules()
    )
    return _EAGER.held() if compiled else nullcontext()


def _is_compiled(module: nn.Module) -> bool:
    compiler = sys.modules.get(_COMPILER)
    return compiler is not None and isinstance(module, compiler.OptimizedModule)


@contextmanager
def _without_checkpoints() -> Iterator[None]:
    """Have both kinds of torch's checkpoints call their function and nothing else."""

    def call(function: Any, preserve_rng_state: bool, *args: Any) -> Any:
        return function(*args)

    def around_call(*_: Any, **__: Any) -> Iterator[None]:
        yield

    users: list[Any] = [checkpoint]
    if _COMPOSABLE in sys.modules:  # which has a name of its own for it
        users.append(sys.modules[_COMPOSABLE])
    before = checkpoint._checkpoint_without_reentrant_generator
    checkpoint.CheckpointFunction.apply = call  # type: ignore[method-assign]  # hides what it inherits
    for one in users:
        one._checkpoint_without_reentrant_generator = around_call
    try:
        yield
    finally:
        del checkpoint.CheckpointFunction.apply
        for one in users:
            one._checkpoint_without_reentrant_generator = before


_EAGER = SharedSetting(lambda: torch.compiler.set_stance("force_eager"))  # torch has one stance for all threads
_UNCHECKPOINTED = SharedSetting(_without_checkpoints)
