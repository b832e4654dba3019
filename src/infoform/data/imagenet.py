"""ImageNet's validation photographs (ILSVRC 2012), some of every class, at 224×224.

Read from `imagenet/val/<synset>/*.JPEG` (or `ILSVRC2012/val/…`, torchvision's layout): the folders in alphabetical
order are the classes 0 to 999. `imagenet_class_index.json`, if it exists, must number them in the same way.
"""

import json
import os
from pathlib import Path

import torch

from infoform.data.images import Images, find, spaced
from infoform.data.photographs import read_photographs

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
NAMES = ("imagenet/val", "ILSVRC2012/val", "val")
INDEX = "imagenet_class_index.json"


def load(which: int, *, classes: int = 1000, root: str | os.PathLike[str] | None = None, size: int = 224) -> Images:
    """Return one photograph of each of some classes, which are evenly spaced over all.

    Args:
        which: The number of the photograph within its class, from 0.
        classes: The number of classes.
        root: The folder to look in; if None, the folder INFOFORM_DATA and then `~/.cache/infoform`.
        size: Height and width in pixels, at most 256.

    Returns:
        Pixels (classes, 3, size, size) of bytes, and class numbers (classes,).

    Raises:
        ValueError: If there are not so many classes or photographs, or the file of classes disagrees with the folders.
        FileNotFoundError: If the photographs are in none of the folders.

    Examples:
        >>> from infoform.data import imagenet
        >>> imagenet.load(0, classes=10).labels  # doctest: +SKIP
        tensor([  0, 100, 200, 300, 400, 500, 600, 700, 800, 900])
    """
    remedy = "set INFOFORM_DATA to a folder that has it; no package may download it"
    folder = find("ImageNet's validation part", NAMES, root, remedy=remedy)
    synsets = sorted(path.name for path in folder.iterdir() if path.is_dir())
    check_index(folder, synsets)
    if not 1 <= classes <= len(synsets):
        raise ValueError(f"classes must be between 1 and the {len(synsets)} in '{folder}', got {classes}.")
    labels = spaced(len(synsets), classes).tolist()
    paths = []
    for label in labels:
        found = sorted((folder / synsets[label]).iterdir())
        if not 0 <= which < len(found):
            raise ValueError(f"which must be between 0 and {len(found) - 1} for class {synsets[label]}, got {which}.")
        paths.append(found[which])
    return Images(read_photographs(paths, size=size), torch.tensor(labels))


def check_index(folder: Path, synsets: list[str]) -> None:
    """Raise a ValueError if there is a file of classes and it does not number them as the folders do."""
    path = folder.parent / INDEX
    if not path.exists():
        return
    numbered = json.loads(path.read_text())
    known = [numbered[str(index)][0] for index in range(len(numbered))]
    if known != synsets:
        raise ValueError(f"'{path}' must number the folders of '{folder}' in alphabetical order; fetch both again.")
