"""The same data by every kind of loader give the same posterior; data that change between passes are refused."""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from infoform import Laplace
from infoform.common.randomness import isolated

from . import claim

STRUCTURES = ("diag", "kfac", "efb", "inf")


class Stream(IterableDataset[Any]):
    """Examples one after the other, of unknown number."""

    def __init__(self, data: TensorDataset) -> None:
        self.data = data

    def __iter__(self) -> Iterator[Any]:
        return iter(self.data)


class Restless(Dataset[Any]):
    """Examples with noise of a generator that nobody seeds."""

    def __init__(self, data: TensorDataset) -> None:
        self.data, self.generator = data, torch.Generator().manual_seed(1)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Any:
        x, y = self.data[index]
        return x + torch.randn(x.shape, generator=self.generator), y


def run(*, quick: bool, seed: int) -> dict[str, Any]:
    """Return for how many loaders the posterior is that of a list of the same batches."""
    generator = torch.Generator().manual_seed(seed)
    data = TensorDataset(torch.randn(60, 5, generator=generator), torch.arange(60) % 3)
    makers: dict[str, Callable[[], Any]] = {
        "DataLoader": lambda: DataLoader(data, 8),
        "worker": lambda: DataLoader(data, 8, num_workers=1),
        "shuffle": lambda: DataLoader(data, 8, shuffle=True),
        "shuffle, generator": lambda: DataLoader(data, 8, shuffle=True, generator=torch.Generator().manual_seed(3)),
        "shuffle, persistent worker": lambda: DataLoader(data, 8, shuffle=True, num_workers=1, persistent_workers=True),
        "iterable": lambda: DataLoader(Stream(data), 8),
    }
    if not quick:
        makers |= {
            "3 workers, persistent": lambda: DataLoader(data, 8, num_workers=3, persistent_workers=True),
            "3 workers, shuffle, persistent, generator": lambda: DataLoader(
                data, 8, shuffle=True, num_workers=3, persistent_workers=True, generator=generator
            ),
            "iterable, worker": lambda: DataLoader(Stream(data), 8, num_workers=1),
            "drop last": lambda: DataLoader(data, 8, shuffle=True, drop_last=True),
        }
    rows = []
    for (name, make), structure in product(makers.items(), ("inf",) if quick else STRUCTURES):
        loader = make()
        with isolated(seed, loader=loader):
            listed = [tuple(part.clone() for part in batch) for batch in loader]
        expected = _fitted(listed, structure, seed)
        same = [torch.equal(_fitted(loader, structure, seed), expected) for _ in range(2)]
        rows.append({"loader": name, "structure": structure, "same": all(same)})
    refused = 0
    structures = ("inf",) if quick else ("inf", "efb")
    for structure in structures:
        try:
            _fitted(DataLoader(Restless(data), 8), structure, seed)
        except ValueError as error:
            refused += "the same data in the same order" in str(error)
    same_count = sum(row["same"] for row in rows)
    return {
        "claims": [
            claim("every loader gives the posterior of a list of the same batches, bit for bit, also when read again",
                  same_count == len(rows), f"{same_count} of {len(rows)}"),
            claim("a loader whose data change between the passes is refused", refused == len(structures),
                  f"{refused} of {len(structures)}"),
        ],
        "rows": rows,
    }  # fmt: skip


def _fitted(loader: Any, structure: str, seed: int) -> Tensor:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))
    laplace = Laplace(model, "classification", structure=structure, seed=seed).fit(loader, progress=False)
    return torch.cat([one.dense().flatten() for one in laplace.posterior().layers.values()])
