"""Reading photographs from files, for ImageNet and the paintings."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

SHORT_SIDE = 256  # pixels, to which the short side is scaled before the middle is cut out


def read_photographs(paths: Sequence[Path], *, size: int = 224) -> Tensor:  # -> (N, 3, size, size), uint8
    """Return the middle of each photograph, after its short side is scaled to 256 pixels.

    Args:
        paths: The files.
        size: Height and width of the middle, in pixels.

    Raises:
        ModuleNotFoundError: If Pillow is not installed.
        ValueError: If `size` is not between 1 and 256.
    """
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "photographs are read by Pillow, which is not installed; pip install 'infoform[imagenet]'."
        ) from None
    if not 1 <= size <= SHORT_SIDE:
        raise ValueError(f"size must be between 1 and {SHORT_SIDE} pixels, got {size}.")
    pixels = np.empty((len(paths), size, size, 3), dtype=np.uint8)
    for index, path in enumerate(paths):
        with Image.open(path) as opened:
            picture = opened.convert("RGB")
        if min(picture.size) != SHORT_SIDE:
            scale = SHORT_SIDE / min(picture.size)
            width, height = (max(SHORT_SIDE, round(scale * side)) for side in picture.size)
            picture = picture.resize((width, height), Image.Resampling.BILINEAR)
        left, top = ((side - size) // 2 for side in picture.size)
        pixels[index] = np.asarray(picture.crop((left, top, left + size, top + size)))
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
