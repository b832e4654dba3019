"""The ResNet-20 whose CIFAR-10 weights others have trained (chenyaofo/pytorch-cifar-models)."""

import os

from safetensors.torch import load_file
from torch import Tensor, nn

from infoform.data.images import find

FILE = "cifar10_resnet20.safetensors"


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.relu, self.downsample = nn.ReLU(), nn.Sequential()
        if inputs != outputs:
            self.downsample.append(nn.Conv2d(inputs, outputs, 1, stride, bias=False))
            self.downsample.append(nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        summed: Tensor = self.relu(out + self.downsample(x))
        return summed


class CifarResNet(nn.Module):
    """Three stages of blocks, a global average and a linear layer."""

    def __init__(self, blocks: int = 3, classes: int = 10) -> None:
        super().__init__()
        self.conv1, self.bn1, self.relu = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()
        self.layer1, self.layer2, self.layer3 = (
            nn.Sequential(*(Block(before if i == 0 else width, width, stride if i == 0 else 1) for i in range(blocks)))
            for before, width, stride in ((16, 16, 1), (16, 32, 2), (32, 64, 2))
        )
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer3(self.layer2(self.layer1(self.relu(self.bn1(self.conv1(x))))))
        logits: Tensor = self.fc(self.avgpool(x).flatten(1))
        return logits


def load_resnet20(*, root: str | os.PathLike[str] | None = None) -> CifarResNet:
    """Return the network in evaluation mode, in float32."""
    path = find("ResNet-20", (f"weights/{FILE}", FILE), root, remedy="set INFOFORM_DATA to its folder")
    model = CifarResNet()
    model.load_state_dict({name: value.to(model.state_dict()[name]) for name, value in load_file(path).items()})
    return model.eval()
