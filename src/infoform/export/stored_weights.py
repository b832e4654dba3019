"""Weights in fewer bytes, made whole again inside the graph: half precision, or int8 with one step a row.

    float16   w ≈ half(w)
    int8      w ≈ step_g · q,  q between -127 and 127, step_g = max |w_g| / 127        (one for each output g)

The sums and products of the network stay in the model's own precision.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

PRECISIONS = ("float32", "float16", "int8")
SMALL = 256  # numbers up to which a tensor is stored as it is


class StoredWeights(nn.Module):
    """Tensors by name, stored in fewer bytes; `restored` gives them back.

    Args:
        tensors: by any names.
        precision: one of `PRECISIONS`; "float32" stores every tensor as it is.
    """

    def __init__(self, tensors: Mapping[str, Tensor], precision: str) -> None:
        super().__init__()
        self._dtypes = {name: one.dtype for name, one in tensors.items()}
        self._places = {name: f"t{place}" for place, name in enumerate(tensors)}
        for name, place in self._places.items():
            self._store(place, tensors[name].detach(), precision)

    def restored(self) -> dict[str, Tensor]:
        """Return the tensors by name."""
        return {name: self._restore(place, self._dtypes[name]) for name, place in self._places.items()}

    def _store(self, place: str, one: Tensor, precision: str) -> None:
        if precision == "float32" or one.numel() <= SMALL or not one.is_floating_point():
            self.register_buffer(place, one)
        elif precision == "float16":
            self.register_buffer(place, one.half())
        else:
            steps, whole = in_int8(one)
            self.register_buffer(place, whole)
            self.register_buffer(f"{place}_step", steps)

    def _restore(self, place: str, dtype: torch.dtype) -> Tensor:
        one: Tensor = self._buffers[place]  # type: ignore[assignment]
        steps = self._buffers.get(f"{place}_step")
        return one.to(dtype) if steps is None else one.to(dtype) * steps.to(dtype)


def in_int8(one: Tensor) -> tuple[Tensor, Tensor]:  # (G, ...) -> (G, 1, ...), (G, ...)
    """Return the step of each row, and whole numbers between -127 and 127."""
    largest = one.abs().flatten(1).amax(1) if one.dim() > 1 else one.abs().amax()[None]
    steps = (largest / 127).clamp_min(torch.finfo(torch.float32).tiny).float()
    steps = steps.reshape(-1, *[1] * (one.dim() - 1))
    return steps, (one / steps).round().clamp(-127, 127).to(torch.int8)
