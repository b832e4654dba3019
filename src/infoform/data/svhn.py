"""SVHN, test part: house numbers, one digit in the middle of each picture, 32×32; unknown data for CIFAR-10.

Read from `svhn/test_32x32_5k.npz` (`images` (N, 32, 32, 3), `labels`; 5,000 digits cut from the full-number images)
or from `test_32x32.mat` (`X` (32, 32, 3, N), `y` 1 to 10, 10 being the digit 0), the format torchvision downloads.
"""

import os

import numpy as np
import torch

from infoform.data.images import Images, fetch, find

NAMES = ("svhn/test_32x32_5k.npz", "svhn/test_32x32.mat", "test_32x32.mat")


def load(*, root: str | os.PathLike[str] | None = None, download: bool = False) -> Images:
    """Return the test digits.

    Args:
        root: The folder to look in; if None, the folder INFOFORM_DATA and then `~/.cache/infoform`.
        download: Whether torchvision downloads all 26,032 digits into `root` first.

    Returns:
        Pixels (N, 3, 32, 32) of bytes, and classes (N,): the digits 0 to 9.

    Raises:
        FileNotFoundError: If the file is in none of the folders.
        ImportError: If `download` is True and torchvision cannot be imported.

    Examples:
        >>> from infoform.data import svhn
        >>> svhn.load().pixels.shape[1:]  # doctest: +SKIP
        torch.Size([3, 32, 32])
    """
    if download:
        root = fetch("SVHN", root, split="test")
    remedy = "set INFOFORM_DATA to a folder that has it, or call with download=True (needs torchvision)"
    path = find("SVHN", NAMES, root, remedy=remedy)
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            images, labels = arrays["images"].transpose(0, 3, 1, 2), arrays["labels"]
    else:
        from scipy.io import loadmat  # type: ignore[import-untyped]

        arrays = loadmat(path)
        images, labels = arrays["X"].transpose(3, 2, 0, 1), arrays["y"].ravel() % 10
    return Images(torch.tensor(np.ascontiguousarray(images)), torch.tensor(labels.astype(np.int64)))
