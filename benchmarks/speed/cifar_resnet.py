"""The public CIFAR-10 ResNets for benchmarks, by the one reader of the experiments, and images of their shape."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from infoform.experiments.networks import cifar_resnets


def cifar_resnet(name: str, folder: Path | None = None) -> nn.Module:
    """Return "resnet20" or "resnet56"; the folder of data is that of INFOFORM_DATA where not given."""
    return cifar_resnets.load(int(name.removeprefix("resnet")), root=folder)


def load_resnet20(*, root: Path | None = None) -> nn.Module:
    """Return ResNet-20 in evaluation mode."""
    return cifar_resnets.load(20, root=root)


def cifar_images(count: int, path: Path | None = None) -> tuple[Tensor, Tensor]:  # -> (N, 3, 32, 32), (N,)
    """Return test images and labels of a file `cifar10.npz`; random ones of that shape without a file."""
    if path is None:
        generator = torch.Generator().manual_seed(0)
        images = torch.randn(count, 3, 32, 32, generator=generator)
        return images, torch.randint(10, (count,), generator=generator)
    with np.load(path) as stored:
        pixels = torch.from_numpy(stored["test_images"][:count]).permute(0, 3, 1, 2)
        return cifar_resnets.scaled(pixels).contiguous(), torch.from_numpy(stored["test_labels"][:count]).long()
