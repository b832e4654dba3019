"""Networks with weights trained on ImageNet: MobileNetV1-0.25, EfficientNet-Lite0 and ResNet-50 v1.

Each is a definition whose parameters bear the names of its file `weights/NAME.safetensors` (less leading underscores),
and the scaling of pixels that it was trained with. Paddings of strided convolutions are those of the framework that a
network was trained in: TensorFlow adds the odd row and column after the picture.
"""

import os
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from infoform.data import imagenet
from infoform.data.images import Images, find

MOBILE_STRIDES = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1)
LITE_BLOCKS = (  # repeats, kernel, stride, expansion, inputs, outputs
    (1, 3, 1, 1, 32, 16),
    (2, 3, 2, 6, 16, 24),
    (2, 5, 2, 6, 24, 40),
    (3, 3, 2, 6, 40, 80),
    (3, 5, 1, 6, 80, 112),
    (4, 5, 2, 6, 112, 192),
    (1, 3, 1, 6, 192, 320),
)


@dataclass(frozen=True)
class TrainedNetwork:
    """A network that can be had with its trained weights."""

    title: str
    file: str  # of `weights/`
    make: Callable[[], nn.Module]
    mean: tuple[float, ...]  # of pixels between 0 and 1
    std: tuple[float, ...]
    published: float  # top-1 accuracy on all 50,000 validation images
    last_layer: str

    def load(self, *, root: str | os.PathLike[str] | None = None) -> nn.Module:
        """Return the network in evaluation mode, in float32; the file must have every weight, and no others."""
        path = find(self.title, (f"weights/{self.file}", self.file), root, remedy="set INFOFORM_DATA to its folder")
        weights = {_plain(name): value.float() for name, value in load_file(path).items()}
        model = self.make()
        model.load_state_dict(weights)
        return model.eval()

    def scaled(self, pixels: Tensor) -> Tensor:  # (N, 3, H, W) uint8 -> float32
        """Return pixels as the network takes them."""
        return Images(pixels, pixels.new_empty(len(pixels))).scaled(self.mean, self.std)


def in_precision(network: nn.Module, precision: str) -> nn.Module:
    """Return the network with the same weights and their names, whose products and convolutions are in a precision.

    Weights, sums and outputs stay in float32. On a processor that has products in "bfloat16" it takes less than half of
    the time.
    """
    own = type(network)

    def forward(self: nn.Module, x: Tensor) -> Tensor:
        with torch.autocast("cpu", getattr(torch, precision)):
            outputs: Tensor = own.forward(self, x)
        return outputs.float()

    lowered = copy(network)
    lowered.__class__ = type(f"{own.__name__}In{precision}", (own,), {"forward": forward})
    return lowered


def mobilenet_v1(width: int = 8, classes: int = 1000) -> nn.Sequential:
    """Thirteen pairs of depthwise and pointwise convolutions; `width` is 8 for 0.25 of the whole network."""
    layers: list[nn.Module] = [*same_padding(3, 2), nn.Conv2d(3, width, 3, 2, bias=False), *norm_relu6(width)]
    for number, stride in enumerate(MOBILE_STRIDES):
        wider = width * 2 if number == 0 or stride == 2 else width
        padding = 1 if stride == 1 else 0
        layers += same_padding(3, stride)
        layers += [nn.Conv2d(width, width, 3, stride, padding, groups=width, bias=False), *norm_relu6(width)]
        layers += [nn.Conv2d(width, wider, 1, bias=False), *norm_relu6(wider)]
        width = wider
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


class LiteBlock(nn.Module):
    """An inverted bottleneck: pointwise, depthwise, pointwise; added to its input where shapes agree."""

    def __init__(self, kernel: int, stride: int, expansion: int, inputs: int, outputs: int) -> None:
        super().__init__()
        wide = inputs * expansion
        self.expands = expansion != 1
        if self.expands:
            self.expand_conv, self.bn0 = nn.Conv2d(inputs, wide, 1, bias=False), nn.BatchNorm2d(wide, eps=1e-3)
        self.pad = nn.Sequential(*same_padding(kernel, stride))
        padding = kernel // 2 if stride == 1 else 0
        self.depthwise_conv = nn.Conv2d(wide, wide, kernel, stride, padding, groups=wide, bias=False)
        self.bn1 = nn.BatchNorm2d(wide, eps=1e-3)
        self.project_conv, self.bn2 = nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs, eps=1e-3)
        self.relu = nn.ReLU6()
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        wide = self.relu(self.bn0(self.expand_conv(x))) if self.expands else x
        wide = self.relu(self.bn1(self.depthwise_conv(self.pad(wide))))
        out: Tensor = self.bn2(self.project_conv(wide))
        return out + x if self.adds else out


class EfficientNetLite(nn.Module):
    """A stem, sixteen inverted bottlenecks and a head, without squeeze and excitation."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.pad = nn.Sequential(*same_padding(3, 2))
        self.conv_stem, self.bn0 = nn.Conv2d(3, 32, 3, 2, bias=False), nn.BatchNorm2d(32, eps=1e-3)
        self.blocks = nn.Sequential()
        for repeats, kernel, stride, expansion, inputs, outputs in LITE_BLOCKS:
            for number in range(repeats):
                first = number == 0
                self.blocks.append(
                    LiteBlock(kernel, stride if first else 1, expansion, inputs if first else outputs, outputs)
                )
        self.conv_head, self.bn1 = nn.Conv2d(320, 1280, 1, bias=False), nn.BatchNorm2d(1280, eps=1e-3)
        self.relu, self.pool, self.fc = nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Linear(1280, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.relu(self.bn0(self.conv_stem(self.pad(x)))))
        x = self.relu(self.bn1(self.conv_head(x)))
        logits: Tensor = self.fc(self.pool(x).flatten(1))
        return logits


class Bottleneck(nn.Module):
    """Three convolutions beside a shortcut; the stride is on the first one, as in the first version of ResNet."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU()
        self.downsample = nn.Sequential()
        if inputs != outputs:
            self.downsample.append(nn.Conv2d(inputs, outputs, 1, stride, bias=False))
            self.downsample.append(nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn3(self.conv3(self.relu(self.bn2(self.conv2(out)))))
        summed: Tensor = self.relu(out + self.downsample(x))
        return summed


class ResNet(nn.Module):
    """ResNet of bottlenecks, with torchvision's names."""

    def __init__(self, depths: tuple[int, ...] = (3, 4, 6, 3), classes: int = 1000) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.relu, self.maxpool = nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        inputs = 64
        for number, depth in enumerate(depths):
            width = 64 * 2**number
            stage = nn.Sequential()
            for index in range(depth):
                stage.append(Bottleneck(inputs, width, 2 if number and not index else 1))
                inputs = 4 * width
            self.add_module(f"layer{number + 1}", stage)
        self.stages = len(depths)
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for number in range(self.stages):
            x = self.get_submodule(f"layer{number + 1}")(x)
        logits: Tensor = self.fc(self.avgpool(x).flatten(1))
        return logits


def same_padding(kernel: int, stride: int) -> list[nn.Module]:
    """Return TensorFlow's padding of an even number of rows before a convolution of stride 2; none for stride 1."""
    before, after = (kernel - 2) // 2, (kernel - 1) // 2
    return [] if stride == 1 else [nn.ZeroPad2d((before, after, before, after))]


def norm_relu6(width: int) -> list[nn.Module]:
    return [nn.BatchNorm2d(width, eps=1e-3), nn.ReLU6()]


def _plain(name: str) -> str:
    return ".".join(part.removeprefix("_") for part in name.split("."))


_BYTES = ((127 / 255,) * 3, (128 / 255,) * 3)  # (x − 127) / 128
_SIGNED = ((0.5,) * 3, (0.5,) * 3)  # x / 127.5 − 1
NETWORKS: dict[str, TrainedNetwork] = {
    "mobilenet": TrainedNetwork(
        "MobileNetV1-0.25", "mobilenet_v1_025.safetensors", mobilenet_v1, *_SIGNED, 0.498, "88"
    ),
    "efficientnet": TrainedNetwork(
        "EfficientNet-Lite0", "efficientnet_lite0.safetensors", EfficientNetLite, *_BYTES, 0.751, "fc"
    ),
    "resnet50": TrainedNetwork(
        "ResNet-50 v1", "resnet50_v1.safetensors", ResNet, imagenet.MEAN, imagenet.STD, 0.749, "fc"
    ),
}
