"""A checksum of data that tells it from other data."""

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from infoform.common.tensor_file import tensor_bytes


def update_digest(batch: Any, digest: int) -> int:
    """Return a checksum of a batch and of all before it, whose checksum is `digest`."""
    if isinstance(batch, Tensor):
        shape = f"{batch.dtype}{tuple(batch.shape)}".encode()
        return zlib.crc32(tensor_bytes(batch), zlib.crc32(shape, digest))
    if isinstance(batch, Mapping):
        for key, value in batch.items():
            digest = update_digest(value, zlib.crc32(str(key).encode(), digest))
        return digest
    if isinstance(batch, Sequence) and not isinstance(batch, str | bytes):
        for value in batch:
            digest = update_digest(value, digest)
        return digest
    if hasattr(batch, "__array__"):
        return update_digest(torch.as_tensor(batch), digest)
    if batch is None or isinstance(batch, str | bytes | int | float):
        return zlib.crc32(repr(batch).encode(), digest)
    return zlib.crc32(type(batch).__name__.encode(), digest)  # an object whose values are not ours to read
