"""The paper's two classifiers, and the augmentation of CIFAR-10."""

import torch
from torch import Tensor, nn

CROP = 24  # pixels: the paper's FC-1 has 384 × 2304 weights, which is two poolings of a crop of 24 × 24


def lenet() -> nn.Sequential:
    """Two convolutions and two linear layers, for MNIST; dropout of 0.6 between the linear ones."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(3136, 1024), nn.ReLU(), nn.Dropout(0.6), nn.Linear(1024, 10),
    )  # fmt: skip


def small_vgg() -> nn.Sequential:
    """Two convolutions and three linear layers with batch norm, for CIFAR-10."""
    return nn.Sequential(
        nn.Conv2d(3, 64, 5, padding=2, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 5, padding=2, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(2304, 384, bias=False), nn.BatchNorm1d(384), nn.ReLU(),
        nn.Linear(384, 192, bias=False), nn.BatchNorm1d(192), nn.ReLU(),
        nn.Linear(192, 10),
    )  # fmt: skip


def central_crop(images: Tensor) -> Tensor:  # (N, C, H, W) -> (N, C, CROP, CROP)
    """Return the middle of every picture, as a test sees it."""
    top, left = ((size - CROP) // 2 for size in images.shape[-2:])
    return images[..., top : top + CROP, left : left + CROP]


def augment(images: Tensor) -> Tensor:  # (N, C, H, W) -> (N, C, CROP, CROP)
    """Crop, flip, brighten and stretch the contrast of scaled pictures, each by chance of its own.

    Brightness adds up to ±0.25 of a standard deviation, contrast multiplies the distance from the picture's mean by 0.8
    to 1.25; global generators decide.
    """
    count, channels, height, width = images.shape
    top = torch.randint(height - CROP + 1, (count, 1))
    left = torch.randint(width - CROP + 1, (count, 1))
    across = torch.arange(CROP).expand(count, CROP)
    across = torch.where(torch.rand(count, 1) < 0.5, across, CROP - 1 - across)
    rows = (top + torch.arange(CROP)).view(count, 1, CROP, 1)
    columns = (left + across).view(count, 1, 1, CROP)
    cut = images[torch.arange(count).view(-1, 1, 1, 1), torch.arange(channels).view(1, -1, 1, 1), rows, columns]
    mean = cut.mean((1, 2, 3), keepdim=True)
    contrast = torch.empty(count, 1, 1, 1).uniform_(-1, 1).mul(torch.tensor(1.25).log()).exp()
    brightness = torch.empty(count, 1, 1, 1).uniform_(-0.25, 0.25)
    return (cut - mean) * contrast + mean + brightness
