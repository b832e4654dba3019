"""A million examples from an iterable data set are fitted, and the memory does not grow with them."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from infoform import Laplace

from . import claim
from .resident import resident_bytes

BLOCK = 10_000
ALLOWED = 8 * 2**20  # bytes


class Endless(IterableDataset[tuple[Tensor, Tensor]]):
    """Examples made as they are asked for, the same in every pass; notes the memory as they go by."""

    def __init__(self, count: int, seed: int) -> None:
        self.count, self.seed, self.held = count, seed, list[int]()

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for start in range(0, self.count, BLOCK):
            generator = torch.Generator().manual_seed(self.seed + start)
            x = torch.randn(BLOCK, 8, generator=generator)
            yield from zip(x.split(1000), x[:, :3].argmax(1).split(1000), strict=True)
            self.held.append(resident_bytes())


def run(*, quick: bool, seed: int) -> dict[str, Any]:
    """Return the growth of memory from the first tenth of a pass to its end, and the examples that were counted."""
    torch.set_num_threads(1)
    count = 50_000 if quick else 1_000_000
    rows, claims = [], []
    for structure in ("diag", "inf"):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))
        data = Endless(count, seed)
        laplace = Laplace(model, "classification", structure=structure, seed=seed)
        laplace.fit(DataLoader(data, batch_size=None), progress=False)
        blocks = count // BLOCK
        first = data.held[max(1, blocks // 10) - 1]
        growth = max(data.held) - first
        rows.append(
            {
                "structure": structure,
                "examples": laplace.num_data,
                "growth": growth,
                "held": data.held[:: max(1, blocks // 20)],
            }
        )
        claims.append(claim(f"{structure}: {count:,} examples in constant memory",
                            growth < ALLOWED and laplace.num_data == count, f"{growth / 2**20:+.1f} MiB"))  # fmt: skip
    return {"claims": claims, "rows": rows}
