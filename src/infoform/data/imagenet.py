"""ImageNet's validation photographs (ILSVRC 2012), some of every class, at 224×224.

Read from `imagenet/val/<synset>/*.JPEG` (or `ILSVRC2012/val/…`, torchvision's layout): the folders in alphabetical
order are the classes 0 to 999, which `imagenet_class_index.json` must confirm where it is there.
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
    """Return the photograph number `which` of each of so many classes, evenly spaced over all."""
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
    """Raise a ValueError unless the file of classes, where there is one, numbers them as the folders do."""
    path = folder.parent / INDEX
    if not path.exists():
        return
    numbered = json.loads(path.read_text())
    known = [numbered[str(index)][0] for index in range(len(numbered))]
    if known != synsets:
        raise ValueError(f"'{path}' must number the folders of '{folder}' in alphabetical order; fetch both again.")
