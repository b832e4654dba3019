"""ImageNet's photographs and the paintings: facts of the real files, and small files written here."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from infoform.data import imagenet, paintings
from infoform.data.images import find
from infoform.data.photographs import read_photographs

needs_data = pytest.mark.skipif(
    "INFOFORM_DATA" not in os.environ and "CI" not in os.environ, reason="needs the folder INFOFORM_DATA"
)


def write_picture(path: Path, width: int, height: int, seed: int = 0) -> np.ndarray:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(path, format="PNG")  # without loss, whatever the name says
    return pixels


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, synset in enumerate(("n01", "n02", "n03")):
        for which in range(2):
            write_picture(tmp_path / "imagenet" / "val" / synset / f"{which}.JPEG", 256, 300, seed=2 * number + which)
    return tmp_path


@needs_data
def test_there_are_two_photographs_of_every_class() -> None:
    root = find("ImageNet", imagenet.NAMES, None, remedy="")
    counts = [len(list(path.iterdir())) for path in root.iterdir() if path.is_dir()]
    assert counts == [2] * 1000
    first, second = imagenet.load(0, classes=4), imagenet.load(1, classes=4)
    assert first.labels.tolist() == [0, 250, 500, 750]
    assert first.pixels.shape == (4, 3, 224, 224)
    assert not torch.equal(first.pixels, second.pixels)


@needs_data
def test_there_are_500_paintings() -> None:
    assert paintings.load(count=3).shape == (3, 3, 224, 224)
    with pytest.raises(ValueError, match="between 1 and the 500"):
        paintings.load(count=501)


def test_the_middle_of_a_picture_is_read(tmp_path: Path) -> None:
    wide = write_picture(tmp_path / "wide.png", 301, 256)
    high = write_picture(tmp_path / "high.png", 256, 280, seed=1)
    found = read_photographs([tmp_path / "wide.png", tmp_path / "high.png"], size=100)
    assert torch.equal(found[0].permute(1, 2, 0), torch.tensor(wide[78:178, 100:200]))
    assert torch.equal(found[1].permute(1, 2, 0), torch.tensor(high[90:190, 78:178]))


@pytest.mark.parametrize(("width", "height"), [(100, 60), (999, 257), (256, 256)])
def test_the_short_side_is_scaled_to_256(tmp_path: Path, width: int, height: int) -> None:
    write_picture(tmp_path / "one.png", width, height)
    assert read_photographs([tmp_path / "one.png"], size=256).shape == (1, 3, 256, 256)


def test_folders_in_alphabetical_order_are_the_classes(folder: Path) -> None:
    found = imagenet.load(1, classes=3, root=folder)
    assert found.labels.tolist() == [0, 1, 2]
    one = read_photographs([folder / "imagenet" / "val" / "n03" / "1.JPEG"])
    assert torch.equal(found.pixels[2], one[0])


def test_a_list_of_classes_in_another_order_is_refused(folder: Path) -> None:
    index = {str(number): [synset, ""] for number, synset in enumerate(("n02", "n01", "n03"))}
    (folder / "imagenet" / imagenet.INDEX).write_text(json.dumps(index))
    with pytest.raises(ValueError, match="alphabetical order"):
        imagenet.load(0, classes=3, root=folder)


def test_more_than_there_is_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="classes must be between 1 and the 3"):
        imagenet.load(0, classes=4, root=folder)
    with pytest.raises(ValueError, match="which must be between 0 and 1"):
        imagenet.load(2, classes=3, root=folder)
    with pytest.raises(ValueError, match="size must be between 1 and 256"):
        imagenet.load(0, classes=3, root=folder, size=300)


def test_missing_pictures_are_reported_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="INFOFORM_DATA"):
        imagenet.load(0, root=tmp_path)
    with pytest.raises(FileNotFoundError, match="INFOFORM_DATA"):
        paintings.load(root=tmp_path)
