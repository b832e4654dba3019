"""MNIST: 60,000 handwritten digits for training and 10,000 for testing, 28×28, from idx files."""

import gzip
import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from infoform.data.images import Images, check_part, fetch, find

MEAN, STD = (0.1307,), (0.3081,)
FOLDERS = ("MNIST/raw", "mnist/MNIST/raw")
STEMS = {"train": "train", "test": "t10k"}


def load(part: str, *, root: str | os.PathLike[str] | None = None, download: bool = False) -> Images:
    """Return one part of MNIST.

    Args:
        part: `"train"` or `"test"`.
        root: The folder to look in; if None, the folder INFOFORM_DATA and then `~/.cache/infoform`.
        download: Whether torchvision downloads the data into `root` first.

    Returns:
        Pixels (N, 1, 28, 28) of bytes, and classes (N,).

    Raises:
        ValueError: If `part` is neither of the two.
        FileNotFoundError: If the files are in none of the folders.
        ImportError: If `download` is True and torchvision cannot be imported.

    Examples:
        >>> from infoform.data import mnist
        >>> len(mnist.load("test"))  # doctest: +SKIP
        10000
    """
    check_part(part)
    if download:
        root = fetch("MNIST", root, train=part == "train")
    remedy = "set INFOFORM_DATA to a folder that has it, or call with download=True (needs torchvision)"
    names = [f"{folder}/{STEMS[part]}-images-idx3-ubyte{end}" for folder in FOLDERS for end in (".gz", "")]
    images = find("MNIST", names, root, remedy=remedy)
    labels = images.with_name(images.name.replace("images-idx3", "labels-idx1"))
    return Images(read_idx(images).unsqueeze(1), read_idx(labels).long())


def read_idx(path: Path) -> Tensor:  # uint8
    """Return the values of an idx file of bytes, gzipped or not.

    The file has a magic number, the sizes (big-endian, four bytes each), and the values.

    Raises:
        ValueError: If the file is not a whole idx file of bytes.
    """
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    kind, axes = raw[:3], raw[3] if len(raw) > 3 else 0
    start = 4 + 4 * axes
    shape = tuple(np.frombuffer(raw[4:start], dtype=">u4").tolist()) if len(raw) >= start else ()
    if kind != b"\0\0\x08" or len(shape) != axes or len(raw) != start + int(np.prod(shape)):
        raise ValueError(f"'{path}' must be a whole idx file of bytes, and is not; fetch it again.")
    return torch.tensor(np.frombuffer(raw, dtype=np.uint8, offset=start).reshape(shape).copy())
