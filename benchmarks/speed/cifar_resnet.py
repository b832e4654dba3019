"""The public CIFAR-10 ResNet-20 and ResNet-56, with weights that others trained, and images of their shape."""

import os
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
BLOCKS = {"resnet20": 3, "resnet56": 9}  # in each of three stages


class BasicBlock(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample: nn.Module | None = None
        if channels != width:
            shortcut = nn.Conv2d(channels, width, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        summed: Tensor = self.relu(self.bn2(self.conv2(x)) + shortcut)
        return summed


class CifarResNet(nn.Module):
    """A stem of 16 channels, three stages of 16, 32 and 64, the mean over positions, ten classes."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.relu = nn.ReLU(inplace=True)
        self.layer1, self.layer2, self.layer3 = (_stage(width, blocks) for width in (16, 32, 64))
        self.fc = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:  # (N, 3, 32, 32) -> (N, 10)
        x = self.layer3(self.layer2(self.layer1(self.relu(self.bn1(self.conv1(x))))))
        logits: Tensor = self.fc(functional.adaptive_avg_pool2d(x, 1).flatten(1))
        return logits


def _stage(width: int, blocks: int) -> nn.Sequential:
    """Return blocks of one width; all stages but the first begin at half of it, with a stride of 2."""
    first = BasicBlock(max(16, width // 2), width, 1 if width == 16 else 2)
    return nn.Sequential(first, *(BasicBlock(width, width, 1) for _ in range(blocks - 1)))


def cifar_resnet(name: str, folder: Path | None = None) -> nn.Module:
    """Return the network in evaluation mode; the folder of data is that of INFOFORM_DATA where not given."""
    model = CifarResNet(BLOCKS[name])
    folder = Path(os.environ["INFOFORM_DATA"]) if folder is None else folder
    model.load_state_dict(load_file(folder / "weights" / f"cifar10_{name}.safetensors"))
    return model.eval()


def cifar_images(count: int, path: Path | None = None) -> tuple[Tensor, Tensor]:
    """Return test images and labels of a file `cifar10.npz`; random ones of that shape without a file."""
    if path is None:
        generator = torch.Generator().manual_seed(0)
        images = torch.randn(count, 3, 32, 32, generator=generator)
        return images, torch.randint(10, (count,), generator=generator)
    with np.load(path) as stored:
        images = torch.from_numpy(stored["test_images"][:count]).permute(0, 3, 1, 2) / 255
        labels = torch.from_numpy(stored["test_labels"][:count]).long()
    mean, deviation = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, DEVIATION))
    return ((images - mean) / deviation).contiguous(), labels
