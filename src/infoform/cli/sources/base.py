"""What every kind of data becomes: batches in a fixed order, names of the examples, and what later data must match."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

from infoform.cli.mistakes import Mistake
from infoform.cli.options import DataOptions
from infoform.likelihoods import Likelihood
from infoform.records.fit import DataFacts

BATCH_SIZE = 128


@dataclass(frozen=True)
class Reading:
    """How data are to be read."""

    options: DataOptions
    likelihood: Likelihood
    dtype: torch.dtype = torch.float32  # of the network's weights
    facts: DataFacts = field(default_factory=DataFacts)  # of the data that the run was fitted on
    labelled: bool = True  # whether targets are needed; targets that are not needed are read if they are there

    @property
    def batch_size(self) -> int:
        return self.options.batch_size or BATCH_SIZE

    @property
    def classes(self) -> list[str] | None:
        """Return the names of the classes in the order of the network's outputs; None where they are not known."""
        return split_names(self.options.classes) or self.facts.classes


@dataclass(frozen=True)
class Data:
    """Batches as `infoform.Laplace` takes them, in the same order each time."""

    loader: Iterable[Any]
    examples: int | None = None  # how many, where known
    names: Sequence[str] | None = None  # of the examples, for people: files, or rows of a table
    facts: DataFacts = field(default_factory=DataFacts)  # what later data must match
    ignored: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # columns that only people need, as ids
    files: Sequence[Path] | None = None  # of the examples, where each is one

    def name(self, index: int) -> str:
        return str(index) if self.names is None else self.names[index]


def split_names(text: str | None) -> list[str]:
    """Return the names in "a,b, c"."""
    return [] if text is None else [name.strip() for name in text.split(",") if name.strip()]


def tensor_loader(inputs: Tensor, targets: Tensor | None, batch_size: int) -> DataLoader[Any]:
    """Return batches of tensors that are all in memory."""
    tensors = (inputs,) if targets is None else (inputs, targets)
    return dataset_loader(TensorDataset(*tensors), batch_size)


def dataset_loader(dataset: Dataset[Any], batch_size: int) -> DataLoader[Any]:
    return DataLoader(dataset, batch_size=batch_size, shuffle=False)


def class_indices(labels: Sequence[str], classes: Sequence[str], where: str) -> Tensor:  # -> (N,)
    """Return the places of the labels among the classes."""
    places = {name: index for index, name in enumerate(classes)}
    unknown = sorted({label for label in labels if label not in places})
    if unknown:
        shown = ", ".join(map(str, list(classes)[:6])) + (", ..." if len(classes) > 6 else "")
        raise Mistake(f"{where} has the class '{unknown[0]}', which is none of {shown}; check the labels or --classes.")
    return torch.tensor([places[label] for label in labels], dtype=torch.int64)
