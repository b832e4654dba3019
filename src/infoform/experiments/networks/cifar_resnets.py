"""ResNets for CIFAR-10 whose trained weights are public: ResNet-20 and ResNet-56.

He et al. 2016, section 4.2: a 3×3 stem of 16 channels, three stages of 16, 32 and 64 channels with n basic blocks each
(n = 3 and 9), the mean over all positions, and a linear layer. The shortcut where a stage begins is a 1×1 convolution.
Parameters bear the names of the files `weights/cifar10_resnet20.safetensors` and `weights/cifar10_resnet56.safetensors`
(chenyaofo/pytorch-cifar-models, BSD-3-Clause), which infoform does not contain.
"""

import os

from safetensors.torch import load_file
from torch import Tensor, nn

from infoform.data.images import Images, find

BLOCKS = {20: 3, 56: 9}  # depth -> basic blocks of each stage
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)  # of pixels between 0 and 1, as in training
LAST_LAYER = "fc"


class BasicBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut; the first one has the stride."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU()
        self.downsample = nn.Sequential()
        if inputs != outputs:
            self.downsample.append(nn.Conv2d(inputs, outputs, 1, stride, bias=False))
            self.downsample.append(nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:  # (N, inputs, H, W) -> (N, outputs, H / stride, W / stride)
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        summed: Tensor = self.relu(out + self.downsample(x))
        return summed


class CifarResNet(nn.Module):
    """A ResNet of basic blocks for pictures of 32×32.

    Args:
        blocks: Basic blocks of each stage.
        width: Channels of the first stage; the others have two and four times as many.
        classes: Number of outputs.
    """

    def __init__(self, blocks: int = 3, *, width: int = 16, classes: int = 10) -> None:
        super().__init__()
        self.conv1, self.bn1, self.relu = (
            nn.Conv2d(3, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
        )
        self.layer1 = self._stage(width, width, blocks, stride=1)
        self.layer2 = self._stage(width, 2 * width, blocks, stride=2)
        self.layer3 = self._stage(2 * width, 4 * width, blocks, stride=2)
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(4 * width, classes)

    def forward(self, x: Tensor) -> Tensor:  # (N, 3, 32, 32) -> (N, classes)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        logits: Tensor = self.fc(self.avgpool(x).flatten(1))
        return logits

    @staticmethod
    def _stage(inputs: int, outputs: int, blocks: int, *, stride: int) -> nn.Sequential:
        first = BasicBlock(inputs, outputs, stride)
        return nn.Sequential(first, *(BasicBlock(outputs, outputs, 1) for _ in range(blocks - 1)))


def load(depth: int, *, root: str | os.PathLike[str] | None = None) -> CifarResNet:
    """Return the trained network in evaluation mode.

    Args:
        depth: 20 or 56.
        root: The folder to look in; if None, the folder INFOFORM_DATA and then `~/.cache/infoform`.

    Raises:
        ValueError: If no weights of a network of this depth are known.
        FileNotFoundError: If the file is in none of the folders.
        RuntimeError: If the file lacks a weight or has one too many.
    """
    if depth not in BLOCKS:
        raise ValueError(f"depth must be one of {', '.join(map(str, BLOCKS))}, got {depth}.")
    file = f"cifar10_resnet{depth}.safetensors"
    path = find(
        f"ResNet-{depth}", (f"weights/{file}", file), root, remedy="set INFOFORM_DATA to the folder that has it"
    )
    model = CifarResNet(BLOCKS[depth])
    model.load_state_dict({name: value.float() if value.is_floating_point() else value
                           for name, value in load_file(path).items()})  # fmt: skip
    return model.eval()


def scaled(pixels: Tensor) -> Tensor:  # (N, 3, 32, 32) uint8 -> float32
    """Return pixels as the networks take them."""
    return Images(pixels, pixels.new_empty(len(pixels))).scaled(MEAN, STD)
