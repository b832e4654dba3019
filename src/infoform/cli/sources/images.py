"""A folder of images: one folder a class (`cat/1.png`, `dog/7.png`), or images alone, which have no labels.

Pixels are numbers from 0 to 1, channels first; `--image-size`, `--image-mean` and `--image-std` do the rest.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from infoform.cli.mistakes import Mistake
from infoform.cli.options import DataOptions
from infoform.cli.sources.base import Data, Reading, class_indices, dataset_loader
from infoform.cli.sources.standardise import channel_values
from infoform.records.fit import DataFacts

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
OPTIONS = frozenset({"classes", "image_size", "image_mean", "image_std", "gray", "batch_size"})


def takes(spec: str) -> bool:
    return Path(spec).is_dir()


# what Pillow raises for files that are no images of their kind
BROKEN = (OSError, ValueError, SyntaxError, LookupError, EOFError, TypeError, ArithmeticError, AttributeError)


def read(spec: str, reading: Reading) -> Data:
    _pillow()
    root = Path(spec)
    folders = sorted(child for child in root.iterdir() if child.is_dir() and not child.name.startswith("."))
    by_class = {folder.name: _images(folder) for folder in folders}
    by_class = {name: files for name, files in by_class.items() if files}
    facts, labels = DataFacts(), None
    if by_class:
        classes = reading.classes
        files = [file for members in by_class.values() for file in members]
        if classes is None and len(by_class) == 1 and reading.labelled:
            raise Mistake(
                f"'{spec}' has images of one class ('{next(iter(by_class))}'), which does not tell the order of the "
                "network's classes; make one folder for each class, or name them all with --classes."
            )
        if classes is not None or reading.labelled:
            names = [name for name, members in by_class.items() for _ in members]
            classes = classes or list(by_class)
            facts = DataFacts(classes=classes)
            if reading.labelled or set(names) <= set(classes):
                labels = class_indices(names, classes, f"'{spec}'")
    else:
        files = _images(root)
        if not files:
            raise Mistake(f"'{spec}' holds no images ({', '.join(SUFFIXES[:4])}, ...); check the folder.")
        if reading.labelled:
            raise Mistake(
                f"'{spec}' holds images without class folders, and labels are needed; make one folder a class."
            )
    dataset = ImageFiles(files, labels, reading.options, reading.dtype)
    loader = dataset_loader(dataset, reading.batch_size)
    return Data(loader, len(files), [str(file.relative_to(root)) for file in files], facts, files=files)


class ImageFiles(Dataset[Any]):
    """Images read when asked for: (C, H, W), with the index of the class where there is one."""

    def __init__(self, files: list[Path], labels: Tensor | None, options: DataOptions, dtype: torch.dtype) -> None:
        self.files, self.labels, self.dtype = files, labels, dtype
        self.channels = 1 if options.gray else 3
        self.size = _size(options.image_size)
        self.mean = channel_values(options.image_mean, "--image-mean", self.channels).float()
        self.std = channel_values(options.image_std, "--image-std", self.channels).float()
        self.shape: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        from PIL import Image, UnidentifiedImageError

        file = self.files[index]
        try:
            with Image.open(file) as opened:
                image = opened.convert("L" if self.channels == 1 else "RGB")
        except Image.DecompressionBombError as error:
            raise Mistake(
                f"'{file}' has too many pixels: {' '.join(str(error).split()).partition(',')[0]}; make it smaller."
            ) from error
        except (UnidentifiedImageError, *BROKEN) as error:
            raise Mistake(f"'{file}' cannot be read as an image; remove it.") from error
        if self.size is not None:
            image = image.resize((self.size[1], self.size[0]), Image.Resampling.BILINEAR)
        pixels = torch.from_numpy(np.array(image, dtype=np.float32) / 255)
        pixels = pixels.reshape(*pixels.shape[:2], self.channels).permute(2, 0, 1)
        self.shape = self.shape or tuple(pixels.shape)
        if pixels.shape != self.shape:
            raise Mistake(
                f"images must have one size, and '{file}' has {pixels.shape[1]}x{pixels.shape[2]} where the first has "
                f"{self.shape[1]}x{self.shape[2]}; give --image-size."
            )
        scaled = ((pixels - self.mean) / self.std).to(self.dtype)
        return (scaled,) if self.labels is None else (scaled, self.labels[index])


def _images(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())


def _size(text: str | None) -> tuple[int, int] | None:  # (H, W)
    if text is None:
        return None
    sides = text.lower().replace("×", "x").split("x")
    if len(sides) > 2 or not all(side.strip().isdigit() and int(side) > 0 for side in sides):
        raise Mistake(f"--image-size must be a number of pixels, or height x width as 224x320, got '{text}'.")
    return int(sides[0]), int(sides[-1])


def _pillow() -> None:
    try:
        import PIL  # noqa: F401
    except ModuleNotFoundError:
        raise Mistake("reading images needs Pillow, which is not installed: pip install 'infoform[images]'.") from None
