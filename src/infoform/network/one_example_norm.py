"""A repair of torch 2.13: batch norm of one example in evaluation mode, on a CPU.

Where the gradient has other strides than the input, as after a transposition, torch's backward pass mixes the channels.
With two examples it does not. Here input and gradient of one example are made contiguous.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode

from infoform.network.batches import Batch


def repaired_batch_norm(model: nn.Module, batch: Batch) -> AbstractContextManager[object]:
    """Repair batch norms in a forward pass where one example may come alone to one; else do nothing."""
    alone = all(not tensor.dim() or len(tensor) == 1 for tensor in batch.tensors())
    return _Repaired() if alone and any(isinstance(one, _BatchNorm) for one in model.modules()) else nullcontext()


class _Repaired(TorchFunctionMode):
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func not in (functional.batch_norm, torch.batch_norm):
            return func(*args, **kwargs)
        if args:
            args = (args[0].contiguous(), *args[1:])
        else:
            kwargs["input"] = kwargs["input"].contiguous()
        output: Tensor = func(*args, **kwargs)
        if output.requires_grad:
            output.register_hook(_contiguous)
        return output


def _contiguous(gradient: Tensor | None) -> Tensor | None:
    # none arrives where the backward pass is another one (frozen_norm.py)
    return None if gradient is None else gradient.contiguous()
