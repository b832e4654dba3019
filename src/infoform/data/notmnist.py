"""notMNIST small: 18,724 letters A to J in many fonts, 28×28; unknown data for a network trained on MNIST.

Read from `notMNIST_small.npz` (`images` (N, 28, 28), `labels`) or from the author's `notMNIST_small.mat`
(`images` (28, 28, N), `labels`).
"""

import os

import numpy as np
import torch

from infoform.data.images import Images, find

SOURCE = "http://yaroslavvb.com/upload/notMNIST/notMNIST_small.mat"
FOLDERS = ("notmnist/", "notMNIST/", "")


def load(*, root: str | os.PathLike[str] | None = None) -> Images:
    """Return all letters. No package downloads them: `SOURCE` is the author's address.

    Args:
        root: The folder to look in; if None, the folder INFOFORM_DATA and then `~/.cache/infoform`.

    Returns:
        Pixels (N, 1, 28, 28) of bytes, and classes (N,): 0 to 9 are A to J.

    Raises:
        FileNotFoundError: If the file is in none of the folders.

    Examples:
        >>> from infoform.data import notmnist
        >>> len(notmnist.load())  # doctest: +SKIP
        18724
    """
    names = [f"{folder}notMNIST_small{end}" for folder in FOLDERS for end in (".npz", ".mat")]
    path = find("notMNIST", names, root, remedy=f"set INFOFORM_DATA to a folder that has it, or fetch {SOURCE}")
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            images, labels = arrays["images"], arrays["labels"]
    else:
        from scipy.io import loadmat  # type: ignore[import-untyped]

        arrays = loadmat(path)
        images, labels = np.moveaxis(arrays["images"], 2, 0), arrays["labels"].ravel()
    return Images(torch.tensor(images.astype(np.uint8)).unsqueeze(1), torch.tensor(labels.astype(np.int64)))
