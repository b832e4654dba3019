"""Inputs become PNG files that other programs read as the same pixels."""

import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image

from infoform.cli.options import DataOptions
from infoform.cli.pictures import LARGEST, Tones, as_image, png


def _pixels(text: str) -> torch.Tensor:  # (H, W) or (H, W, 3)
    with Image.open(io.BytesIO(base64.b64decode(text))) as opened:
        opened.verify()
    return torch.from_numpy(np.array(Image.open(io.BytesIO(base64.b64decode(text)))))


@pytest.mark.parametrize("channels", [1, 3])
def test_pixels_are_kept(channels: int) -> None:
    torch.manual_seed(0)
    whole = torch.randint(256, (channels, 7, 11))
    image = as_image(whole / 255)
    assert image is not None
    expected = whole.permute(1, 2, 0).squeeze(-1).to(torch.uint8)
    assert torch.equal(_pixels(png(image, Tones.of([image], DataOptions()))), expected)


def test_normalisation_is_undone() -> None:
    torch.manual_seed(0)
    whole = torch.randint(256, (3, 5, 5))
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    scaled = (whole / 255 - mean[:, None, None]) / std[:, None, None]
    options = DataOptions(image_mean="0.485,0.456,0.406", image_std="0.229,0.224,0.225")
    assert torch.equal(_pixels(png(scaled, Tones.of([scaled], options))), whole.permute(1, 2, 0).to(torch.uint8))


def test_other_numbers_are_stretched_over_all_that_are_shown() -> None:
    dark, bright = torch.full((1, 4, 4), -2.0), torch.full((1, 4, 4), 6.0)
    middle = torch.full((1, 4, 4), 2.0)
    tones = Tones.of([dark, bright, middle], DataOptions())
    shown = [int(_pixels(png(image, tones))[0, 0]) for image in (dark, middle, bright)]
    assert shown == [0, 128, 255]


def test_constant_pictures_outside_of_the_unit_interval() -> None:
    flat = torch.full((1, 4, 4), 7.0)
    assert torch.equal(_pixels(png(flat, Tones.of([flat], DataOptions()))), torch.zeros(4, 4, dtype=torch.uint8))


def test_large_pictures_are_made_small() -> None:
    image = torch.rand(3, 2 * LARGEST, LARGEST)
    assert _pixels(png(image, Tones.of([image], DataOptions()))).shape == (LARGEST, LARGEST // 2, 3)


@pytest.mark.parametrize("shape", [(64,), (2, 8, 8), (1, 3, 8), (3, 8, 8, 8), ()])
def test_what_is_no_picture(shape: tuple[int, ...]) -> None:
    assert as_image(torch.zeros(shape)) is None


def test_a_matrix_is_a_grey_picture() -> None:
    image = as_image(torch.zeros(8, 6))
    assert image is not None
    assert image.shape == (1, 8, 6)
