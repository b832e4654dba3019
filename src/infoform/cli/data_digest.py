"""Which data are in a run: a digest of all examples, the same for any order and any batch size.

Every example is hashed on its own, and the hashes are added up. So data that a run has already seen are told also where
they come shuffled, or in other batches; a part of them, or the same data with other values, has another digest.

A part is told by a sample: the smallest hashes of all examples (Broder 1997). Hashes of other data that are as small
belong to examples drawn at random from these, and the share of them that is in the sample is the share in the data.
"""

import hashlib
import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from infoform.cli.sources.base import Data
from infoform.common.randomness import isolated
from infoform.common.tensor_file import tensor_bytes

BITS = 128
SAMPLE = 1024  # examples that are remembered
DIGITS = 12  # of each, hexadecimal
BLOCK = 2**20  # bytes of a file that are read at a time


@dataclass(frozen=True)
class DataDigest:
    """What is remembered of data."""

    total: str  # of all examples, and their number
    sample: str  # the smallest hashes, one after the other
    known: float = 0.0  # about which share of the examples earlier data have, too


def data_digest(data: Data, *, seed: int = 0, earlier: Sequence[str] = ()) -> DataDigest:
    """Return the digest of data, of its files where each example is one and else of its batches, which are read.

    Args:
        data: The data.
        seed: Of a loader that draws random numbers.
        earlier: Samples of other data, of which the digest tells whether these have examples in common with them.
    """
    if data.files is not None:
        files = zip(data.files, data.names or data.files, strict=True)
        return _digest((_file_hash(path, name) for path, name in files), earlier)
    with isolated(seed, loader=data.loader):
        return _digest((one for batch in data.loader for one in _example_hashes(batch)), earlier)


def _digest(hashes: Iterable[bytes], earlier: Sequence[str]) -> DataDigest:
    total, count, sample = 0, 0, _Smallest()
    others = [_Overlap.with_sample(text) for text in earlier]
    for one in hashes:
        number = int.from_bytes(one, "little")
        total, count = (total + number) % 2**BITS, count + 1
        short = number >> (BITS - 4 * DIGITS)
        sample.add(short)
        for other in others:
            other.count(short)
    known = min(1.0, sum(other.share for other in others))
    return DataDigest(f"{count} examples, {total:0{BITS // 4}x}", sample.text(), known)


class _Smallest:
    """The smallest of many numbers, each once."""

    def __init__(self) -> None:
        self._largest_first: list[int] = []
        self._members: set[int] = set()

    def add(self, number: int) -> None:
        heap = self._largest_first
        if (len(heap) == SAMPLE and number >= -heap[0]) or number in self._members:
            return
        self._members.add(number)
        if len(heap) < SAMPLE:
            heapq.heappush(heap, -number)
        else:
            self._members.discard(-heapq.heapreplace(heap, -number))

    def text(self) -> str:
        return "".join(f"{number:0{DIGITS}x}" for number in sorted(self._members))


@dataclass
class _Overlap:
    """Counts which of the examples are in other data, among those that its sample would have."""

    members: frozenset[int]
    largest: int
    asked: int = 0
    found: int = 0

    @classmethod
    def with_sample(cls, text: str) -> "_Overlap":
        members = frozenset(int(text[start : start + DIGITS], 16) for start in range(0, len(text), DIGITS))
        return cls(members, max(members) if len(members) >= SAMPLE else 16**DIGITS)

    def count(self, number: int) -> None:
        if number <= self.largest:
            self.asked += 1
            self.found += number in self.members

    @property
    def share(self) -> float:
        return self.found / self.asked if self.asked else 0.0


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
