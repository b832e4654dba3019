"""Which data are in a run: a digest of all examples, the same for any order and any batch size.

Every example is hashed on its own, and the hashes are added up. So data that a run has already seen are told also where
they come shuffled, or in other batches; a part of them, or the same data with other values, has another digest.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from infoform.cli.sources.base import Data
from infoform.common.randomness import isolated
from infoform.common.tensor_file import tensor_bytes

BITS = 128
BLOCK = 2**20  # bytes of a file that are read at a time


def data_digest(data: Data, *, seed: int = 0) -> str:
    """Return the digest of data, of its files where each example is one and else of its batches, which are read."""
    if data.files is not None:
        hashes = (_file_hash(path, name) for path, name in zip(data.files, data.names or data.files, strict=True))
        return _sum(hashes)
    with isolated(seed, loader=data.loader):
        return _sum(one for batch in data.loader for one in _example_hashes(batch))


def _sum(hashes: Iterable[bytes]) -> str:
    total, count = 0, 0
    for one in hashes:
        total, count = (total + int.from_bytes(one, "little")) % 2**BITS, count + 1
    return f"{count} examples, {total:0{BITS // 4}x}"


def _file_hash(path: Path, name: object) -> bytes:
    digest = _new(str(name).encode())  # the name says the class
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.digest()


def _example_hashes(batch: Any) -> Iterator[bytes]:
    """Yield a hash of every example of a batch, or one of the whole batch where it is not of tensors alone."""
    parts = list(_leaves(batch, ""))
    sizes = {len(value) for _, value in parts if isinstance(value, Tensor) and value.dim()}
    if len(sizes) != 1 or not all(isinstance(value, Tensor) and value.dim() for _, value in parts):
        digest = _new(b"batch")
        for name, value in parts:
            digest.update(name.encode() + (tensor_bytes(value) if isinstance(value, Tensor) else repr(value).encode()))
        yield digest.digest()
        return
    plain = [(f"{name} {value.dtype} {tuple(value.shape[1:])}".encode(), value.detach().cpu()) for name, value in parts]
    for row in range(sizes.pop()):
        digest = _new(b"example")
        for about, value in plain:
            digest.update(about)
            digest.update(tensor_bytes(value[row]))
        yield digest.digest()


def _leaves(batch: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(batch, Mapping):
        for key, value in batch.items():
            yield from _leaves(value, f"{name}.{key}")
    elif isinstance(batch, Sequence) and not isinstance(batch, str | bytes):
        for place, value in enumerate(batch):
            yield from _leaves(value, f"{name}.{place}")
    else:
        yield name, batch


def _new(start: bytes) -> "hashlib.blake2b":
    return hashlib.blake2b(start, digest_size=BITS // 8)
