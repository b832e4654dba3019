"""Paintings by fifty artists, 224×224: unknown data for a network trained on ImageNet, as in the paper."""

import os

from torch import Tensor

from infoform.data.images import find, spaced
from infoform.data.photographs import read_photographs


def load(*, count: int | None = None, root: str | os.PathLike[str] | None = None, size: int = 224) -> Tensor:
    """Return all paintings, (N, 3, size, size) of bytes, or `count` of them, evenly spaced over the files by name."""
    folder = find("the paintings", ("paintings",), root, remedy="set INFOFORM_DATA to a folder that has them")
    paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
    count = len(paths) if count is None else count
    if not 1 <= count <= len(paths):
        raise ValueError(f"count must be between 1 and the {len(paths)} paintings in '{folder}', got {count}.")
    return read_photographs([paths[index] for index in spaced(len(paths), count).tolist()], size=size)
