"""Paintings by fifty artists, 224×224: unknown data for a network trained on ImageNet, as in the paper."""

import os

from torch import Tensor

from infoform.data.images import find, spaced
from infoform.data.photographs import read_photographs


def load(*, count: int | None = None, root: str | os.PathLike[str] | None = None, size: int = 224) -> Tensor:
    """Return paintings, evenly spaced over the files by name.

    Args:
        count: The number of paintings; if None, all.
        root: The folder to look in; if None, the folder INFOFORM_DATA and then `~/.cache/infoform`.
        size: Height and width in pixels, at most 256.

    Returns:
        Pixels (N, 3, size, size) of bytes.

    Raises:
        ValueError: If there are not so many paintings.
        FileNotFoundError: If the paintings are in none of the folders.

    Examples:
        >>> from infoform.data import paintings
        >>> paintings.load(count=5).shape  # doctest: +SKIP
        torch.Size([5, 3, 224, 224])
    """
    folder = find("the paintings", ("paintings",), root, remedy="set INFOFORM_DATA to a folder that has them")
    paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
    count = len(paths) if count is None else count
    if not 1 <= count <= len(paths):
        raise ValueError(f"count must be between 1 and the {len(paths)} paintings in '{folder}', got {count}.")
    return read_photographs([paths[index] for index in spaced(len(paths), count).tolist()], size=size)
