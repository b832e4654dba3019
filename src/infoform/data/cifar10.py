"""CIFAR-10: 50,000 colour photographs for training and 10,000 for testing, of ten classes, 32×32.

Read from `cifar10.npz` (`train_images` (N, 32, 32, 3), `train_labels`, `test_images`, `test_labels`) or from the
"python version" as torchvision unpacks it (`cifar-10-batches-py`).
"""

import io
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch

from infoform.data.images import Images, check_part, fetch, find

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
BATCHES = {"train": [f"data_batch_{number}" for number in range(1, 6)], "test": ["test_batch"]}


def load(part: str, *, root: str | os.PathLike[str] | None = None, download: bool = False) -> Images:
    """Return one part of CIFAR-10.

    Args:
        part: `"train"` or `"test"`.
        root: The folder to look in; if None, the folder INFOFORM_DATA and then `~/.cache/infoform`.
        download: Whether torchvision downloads the data into `root` first.

    Returns:
        Pixels (N, 3, 32, 32) of bytes, and classes (N,).

    Raises:
        ValueError: If `part` is neither of the two.
        FileNotFoundError: If the files are in none of the folders.
        ImportError: If `download` is True and torchvision cannot be imported.

    Examples:
        >>> from infoform.data import cifar10
        >>> len(cifar10.load("test"))  # doctest: +SKIP
        10000
    """
    check_part(part)
    if download:
        root = fetch("CIFAR10", root, train=part == "train")
    names = ("cifar10.npz", "cifar10/cifar10.npz", "cifar-10-batches-py", "cifar10/cifar-10-batches-py")
    remedy = "run `fetch-cifar10` of the data folder for one of these, or call with download=True (needs torchvision)"
    path = find("CIFAR-10", names, root, remedy=remedy)
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            images, labels = arrays[f"{part}_images"].transpose(0, 3, 1, 2), arrays[f"{part}_labels"]
    else:
        batches = [read_batch(path / name) for name in BATCHES[part]]
        images = np.concatenate([batch[b"data"] for batch in batches]).reshape(-1, 3, 32, 32)
        labels = np.concatenate([batch[b"labels"] for batch in batches])
    return Images(torch.tensor(np.ascontiguousarray(images)), torch.tensor(labels.astype(np.int64)))


def read_batch(path: Path) -> dict[bytes, Any]:
    """Return one pickled batch; anything but arrays and plain values is refused, so no code is run."""
    batch: dict[bytes, Any] = _ArrayUnpickler(io.BytesIO(path.read_bytes()), encoding="bytes").load()
    return batch


class _ArrayUnpickler(pickle.Unpickler):
    """An unpickler that knows NumPy's arrays, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if name == "_reconstruct" and module.endswith("core.multiarray"):
            return np.empty(0).__reduce__()[0]
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        if (module, name) == ("_codecs", "encode"):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"a batch of CIFAR-10 holds arrays only, got {module}.{name}; fetch it again.")
