"""Pictures with their classes, and the folders in which data sets of images are looked for.

A file is looked for in `root` if one is given, otherwise in the folder INFOFORM_DATA and then in `~/.cache/infoform`.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import torch
from torch import Tensor

CACHE = Path("~/.cache/infoform")


@dataclass(frozen=True, eq=False)
class Images:
    """Pictures and their classes.

    Examples:
        >>> import torch
        >>> from infoform.data.images import Images
        >>> images = Images(torch.zeros(3, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 1]))
        >>> len(images), len(images[:2])
        (3, 2)
    """

    pixels: Tensor  # (N, C, H, W), uint8
    labels: Tensor  # (N,), int64

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: slice | Tensor) -> "Images":
        return Images(self.pixels[rows], self.labels[rows])

    def scaled(self, mean: Sequence[float], std: Sequence[float]) -> Tensor:  # (N, C, H, W), float32
        """Return the pixels as numbers from 0 to 1, minus a mean and divided by a standard deviation.

        Args:
            mean: One mean for each channel.
            std: One standard deviation for each channel.
        """
        shape = (1, -1, 1, 1)
        return (self.pixels / 255 - torch.tensor(mean).view(shape)) / torch.tensor(std).view(shape)


def spaced(available: int, count: int) -> Tensor:  # -> (min(count, available),)
    """Return the numbers of `count` rows, evenly spaced over all that are available, or of all where those are fewer.

    The order of a data set may say something: MNIST's first 5,000 test digits are easier than its last.
    """
    count = min(count, available)
    return torch.arange(count) * available // count


def find(what: str, names: Sequence[str], root: str | os.PathLike[str] | None, *, remedy: str) -> Path:
    """Return the first file or folder that exists, in the order of the roots and then of the names.

    Args:
        what: The data set, for the error.
        names: Paths of files or folders, relative to a root.
        root: The folder to look in; if None, those of `roots`.
        remedy: What to do if nothing is found, for the error.

    Raises:
        FileNotFoundError: If none of them exists.
    """
    for folder in roots(root):
        for name in names:
            if (folder / name).exists():
                return folder / name
    looked = ", ".join(f"'{folder}'" for folder in roots(root))
    raise FileNotFoundError(f"{what} must be in {looked} as {' or '.join(names)}, and is not; {remedy}.")


def roots(root: str | os.PathLike[str] | None) -> list[Path]:
    """Return the folders in which data are looked for."""
    if root is not None:
        return [Path(root).expanduser()]
    named = os.environ.get("INFOFORM_DATA")
    return [*([Path(named)] if named else []), CACHE.expanduser()]


def fetch(data_set: str, root: str | os.PathLike[str] | None, **options: object) -> Path:
    """Let torchvision download one of its data sets, and return the folder.

    Args:
        data_set: The class of `torchvision.datasets`.
        root: The folder to download into; if None, `~/.cache/infoform`.
        **options: Options of that class.

    Raises:
        ImportError: If torchvision cannot be imported.
    """
    try:
        datasets = import_module("torchvision.datasets")
    except ImportError as error:
        raise ImportError(
            f"download=True needs torchvision, which cannot be imported ({error}); pip install torchvision, "
            "or put the files into the folder INFOFORM_DATA."
        ) from error
    folder = (CACHE if root is None else Path(root)).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    getattr(datasets, data_set)(str(folder), download=True, **options)
    return folder


def check_part(part: str) -> None:
    """Raise a ValueError unless the part is "train" or "test"."""
    if part not in ("train", "test"):
        raise ValueError(f"part must be 'train' or 'test', got {part!r}.")
