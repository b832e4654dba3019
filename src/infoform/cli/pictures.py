"""Inputs as small pictures: PNG files in base64, as a page can hold them."""

import base64
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from infoform.cli.options import DataOptions
from infoform.cli.sources.standardise import channel_values

LARGEST = 96  # pixels of a side
LEAST = 4  # fewer are no picture
ROUNDING = 1e-3


@dataclass(frozen=True)
class Tones:
    """How a network's inputs become numbers from 0 (black) to 1 (white)."""

    mean: Tensor  # (1 or C, 1, 1): undone by x * std + mean
    std: Tensor  # (1 or C, 1, 1)
    low: float = 0.0  # black
    high: float = 1.0  # white

    @classmethod
    def of(cls, images: Sequence[Tensor], options: DataOptions) -> "Tones":
        """Undo `--image-mean` and `--image-std`; where pixels lie elsewhere than in 0..1, show all they span."""
        mean = channel_values(options.image_mean, "--image-mean", len(images[0])).float()
        std = channel_values(options.image_std, "--image-std", len(images[0])).float()
        low = min(float((image * std + mean).min()) for image in images)
        high = max(float((image * std + mean).max()) for image in images)
        if low < -ROUNDING or high > 1 + ROUNDING:
            return cls(mean, std, low, max(high, low + ROUNDING))
        return cls(mean, std)

    def brightness(self, image: Tensor) -> Tensor:  # (C, H, W)
        return ((image * self.std + self.mean - self.low) / (self.high - self.low)).clamp(0, 1)


def as_image(example: Tensor) -> Tensor | None:  # -> (1 or 3, H, W)
    """Return one input as a grey or coloured picture; None where it is none."""
    image = example.unsqueeze(0) if example.dim() == 2 else example
    if image.dim() != 3 or image.shape[0] not in (1, 3) or min(image.shape[1:]) < LEAST:
        return None
    return image.detach().to("cpu", torch.float32)


def png(image: Tensor, tones: Tones) -> str:  # (1 or 3, H, W)
    """Return the picture as a PNG in base64, its longer side at most `LARGEST` pixels."""
    bright = tones.brightness(image)
    longest = max(bright.shape[1:])
    if longest > LARGEST:
        sides = [max(1, round(side * LARGEST / longest)) for side in bright.shape[1:]]
        bright = functional.interpolate(bright.unsqueeze(0), size=sides, mode="area")[0]
    pixels = (255 * bright).round().to(torch.uint8).permute(1, 2, 0).contiguous()  # (H, W, C)
    return base64.b64encode(_encoded(pixels)).decode()


def _encoded(pixels: Tensor) -> bytes:  # (H, W, 1 or 3)
    """Return a PNG of 8 bits a channel; https://www.w3.org/TR/png."""
    height, width, channels = pixels.shape
    rows = functional.pad(pixels.reshape(height, width * channels), (1, 0))  # each row starts with its filter, none
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.numpy().tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )
