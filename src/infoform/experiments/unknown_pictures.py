"""The unknown pictures and the spoilt ones: all are made from data at hand, with fixed seeds.

Pixels are bytes, (N, channels, height, width), and every network scales them by itself.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

Corruption = Callable[[Tensor, float], Tensor]
BLUR = (0.02, 0.03, 0.045, 0.065, 0.09)  # standard deviation as a share of the width
CONTRAST = (0.7, 0.5, 0.35, 0.2, 0.1)  # what is left of it
NOISE = (0.04, 0.08, 0.12, 0.18, 0.26)  # standard deviation, of a range of 1


def noise(count: int, shape: tuple[int, ...], *, normal: bool) -> Tensor:
    """Return pictures whose pixels are drawn one by one: uniform, or normal with a deviation of a quarter."""
    generator = torch.Generator().manual_seed(1)
    if normal:
        return _bytes(0.5 + 0.25 * torch.randn(count, *shape, generator=generator))
    return torch.randint(256, (count, *shape), generator=generator, dtype=torch.uint8)


def in_colour(digits: Tensor, size: int = 32) -> Tensor:  # (N, 1, 28, 28) -> (N, 3, size, size)
    """Return digits at another size, each in a colour of its own on a ground of another."""
    generator = torch.Generator().manual_seed(2)
    shapes = functional.interpolate(digits / 255, (size, size), mode="bilinear")
    ink, ground = torch.rand(2, len(digits), 3, 1, 1, generator=generator)
    return _bytes(shapes * ink + (1 - shapes) * ground)


def shrunk(pixels: Tensor, size: int = 32) -> Tensor:  # (N, 3, H, W) -> (N, 3, size, size)
    """Return pictures at another size, by the mean over areas."""
    small = [functional.interpolate(part.float() / 255, (size, size), mode="area") for part in pixels.split(100)]
    return _bytes(torch.cat(small))


def shifted(pixels: Tensor, by: int = 7) -> Tensor:
    """Return pictures moved to the right and down; what leaves comes in again."""
    return pixels.roll((by, by), (2, 3))


def rotated(pixels: Tensor) -> Tensor:
    """Return pictures turned by a quarter."""
    return pixels.rot90(1, (2, 3)).contiguous()


def blurred(pixels: Tensor, strength: float) -> Tensor:
    """Return pictures under a Gaussian filter."""
    deviation = strength * pixels.shape[-1]
    reach = math.ceil(3 * deviation)
    places = torch.arange(-reach, reach + 1)
    line = (-(places**2) / (2 * deviation**2)).exp()
    channels = pixels.shape[1]
    across = (line / line.sum()).expand(channels, 1, 1, -1)
    out = functional.pad(pixels / 255, (reach,) * 4, mode="replicate")
    out = functional.conv2d(functional.conv2d(out, across, groups=channels), across.mT.contiguous(), groups=channels)
    return _bytes(out)


def flattened(pixels: Tensor, left: float) -> Tensor:
    """Return pictures with less contrast: nearer to their own mean."""
    values = pixels / 255
    mean = values.mean((1, 2, 3), keepdim=True)
    return _bytes(mean + left * (values - mean))


def noisy(pixels: Tensor, deviation: float) -> Tensor:
    """Return pictures with normal noise on every pixel."""
    generator = torch.Generator().manual_seed(3)
    return _bytes(pixels / 255 + deviation * torch.randn(pixels.shape, generator=generator))


CORRUPTIONS: dict[str, tuple[Corruption, tuple[float, ...]]] = {
    "blur": (blurred, BLUR),
    "contrast": (flattened, CONTRAST),
    "noise": (noisy, NOISE),
}


def spoilt(pixels: Tensor) -> dict[str, Tensor]:
    """Return the same pictures under every corruption and strength, named "blur 1" to "noise 5"."""
    return {
        f"{name} {number}": change(pixels, strength)
        for name, (change, strengths) in CORRUPTIONS.items()
        for number, strength in enumerate(strengths, start=1)
    }


def _bytes(values: Tensor) -> Tensor:  # numbers from 0 to 1 -> uint8
    return (255 * values.clamp(0, 1)).round().to(torch.uint8)
