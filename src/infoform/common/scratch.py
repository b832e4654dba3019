"""Memory for what is held only for a moment, the same at every call: fresh pages cost more than numbers."""

import threading

import torch
from torch import Tensor

LARGEST = 2**21  # numbers: what a thread keeps


class _Kept(threading.local):
    def __init__(self) -> None:
        self.rooms: dict[tuple[torch.dtype, torch.device], Tensor] = {}


_KEPT = _Kept()


def room(like: Tensor, size: int) -> Tensor:  # -> (size,)
    """Return uninitialised numbers, which the next call in this thread gives away again."""
    if size > LARGEST:
        return like.new_empty(size)
    kept = _KEPT.rooms
    key = (like.dtype, like.device)
    if key not in kept or len(kept[key]) < size:
        kept[key] = like.new_empty(size)
    return kept[key][:size]
