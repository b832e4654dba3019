"""The networks that are measured, and their data: random but smooth, in clusters, as in predict_speed.py."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

Batch = tuple[Tensor, Tensor]


class Batches(DataLoader[Batch]):
    """A DataLoader, as some peers insist on, whose batches are made beforehand: loading is not what is measured."""

    def __init__(self, inputs: Tensor, labels: Tensor, size: int) -> None:
        super().__init__(TensorDataset(inputs, labels), batch_size=size)  # type: ignore[arg-type]
        self._parts = list(zip(inputs.split(size), labels.split(size), strict=True))

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        for inputs, labels in self._parts:
            yield inputs.detach(), labels  # a new tensor each: one peer sets requires_grad on what it is given

    def first(self, count: int) -> "Batches":
        """Return the first `count` batches."""
        parts = self._parts[:count]
        size = len(parts[0][0])
        return Batches(torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts]), size)


@dataclass(frozen=True)
class Network:
    """A network with its data, and how often it is measured."""

    about: str
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]  # of one input
    classes: int
    examples: int
    batch: int
    repeats: int
    train: bool = False  # briefly; else at its random start
    stages: tuple[str, ...] = ("fits", "peaks", "posteriors")

    def build(self) -> tuple[nn.Module, Batches]:
        """Return the model, in evaluation mode, and its data; the same ones every time."""
        torch.manual_seed(0)
        inputs, labels = clusters(self.examples, self.shape, self.classes)
        model = self.make()
        if self.train:
            fit_briefly(model, inputs, labels)
        else:
            calibrate_norms(model, inputs[: 2 * self.batch])
        return model.eval(), Batches(inputs, labels, self.batch)


def clusters(count: int, shape: tuple[int, ...], classes: int) -> tuple[Tensor, Tensor]:
    """Return inputs around ten random prototypes, blurred so that neighbours agree, and labels that tell them apart."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(classes, (count,), generator=generator)
    channels, height, width = (1,) * (3 - len(shape)) + shape
    noise = torch.randn(count + 10, channels, height, width, generator=generator)
    smooth = functional.avg_pool2d(noise, (min(5, height), 5), stride=1, padding=(2 if height > 4 else 0, 2))
    smooth = smooth[..., :height, :] / smooth.std()
    return (smooth[:10][labels % 10] + smooth[10:]).reshape(count, *shape), labels


def fit_briefly(model: nn.Module, inputs: Tensor, labels: Tensor) -> None:
    """Train for two epochs of at most 3,000 examples."""
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for part in torch.arange(min(3000, len(inputs))).repeat(2).split(100):
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs[part]), labels[part]).backward()
        optimizer.step()


def calibrate_norms(model: nn.Module, inputs: Tensor) -> None:
    """Give batch-norms the statistics of some inputs: at their start, in evaluation mode, deep networks explode."""
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    if norms:
        for norm in norms:
            norm.momentum = 1.0
        with torch.no_grad():
            model.train()(inputs)


def perceptron(hidden: int) -> nn.Module:
    layers = (nn.Linear(784, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 10))
    return nn.Sequential(nn.Flatten(), *layers)


def lenet(first: int, second: int, hidden: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, first, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(first, second, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(49 * second, hidden), nn.ReLU(), nn.Linear(hidden, 10),
    )  # fmt: skip


def from_pytorchcv(name: str) -> nn.Module:
    from pytorchcv.model_provider import get_model

    model: nn.Module = get_model(name, pretrained=False)
    return model


def tiny_resnet() -> nn.Module:
    from pytorchcv.models.resnet import ResNet

    model: nn.Module = ResNet(
        [[4, 4], [8, 8]], 4, bottleneck=False, conv1_stride=True, in_size=(56, 56), num_classes=10
    )
    return model


def tiny_densenet() -> nn.Module:
    from pytorchcv.models.densenet import DenseNet

    model: nn.Module = DenseNet([[12, 16], [12, 16]], 8, in_size=(56, 56), num_classes=10)
    return model


class Encoder(nn.Module):
    """A transformer encoder, mean-pooled to ten classes."""

    def __init__(self, depth: int, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, heads, hidden, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:  # (N, S, width) -> (N, 10)
        logits: Tensor = self.head(self.encoder(x).mean(1))
        return logits


_RESNET = Network(
    "ResNet-18, 224² images, 1,000 classes", partial(from_pytorchcv, "resnet18"), (3, 224, 224), 1000, 64, 8, 3
)
FULL = {
    "mlp": Network(
        "MLP 784-1024-1024-10, trained briefly", partial(perceptron, 1024), (1, 28, 28), 10, 10_000, 128, 5, train=True
    ),
    "lenet": Network(
        "the paper's LeNet, trained briefly", partial(lenet, 32, 64, 1024), (1, 28, 28), 10, 5000, 128, 5, train=True
    ),
    "resnet18": _RESNET,
    "resnet18-256": replace(_RESNET, examples=256, repeats=1, stages=("fits",)),
    "densenet121": Network(
        "DenseNet-121, 224² images, 1,000 classes",
        partial(from_pytorchcv, "densenet121"), (3, 224, 224), 1000, 32, 8, 3,
    ),
    "transformer": Network(
        "a transformer encoder of 6 layers, d = 512, 8 heads, feed-forward 2,048, 32 tokens, mean-pooled to 10 classes",
        partial(Encoder, 6, 512, 8, 2048), (32, 512), 10, 512, 16, 3, stages=("fits", "peaks"),
    ),
}  # fmt: skip
_TINY_RESNET = Network("a tiny ResNet", tiny_resnet, (3, 56, 56), 10, 16, 8, 1, stages=("fits", "posteriors"))
QUICK = {
    "mlp": Network(
        "MLP 784-64-64-10", partial(perceptron, 64), (1, 28, 28), 10, 256, 128, 1, train=True,
        stages=("fits", "posteriors"),
    ),
    "lenet": Network("a thin LeNet", partial(lenet, 4, 8, 64), (1, 28, 28), 10, 256, 128, 1, train=True),
    "resnet18": _TINY_RESNET,
    "resnet18-256": replace(_TINY_RESNET, examples=32, stages=("fits",)),
    "densenet121": Network("a tiny DenseNet", tiny_densenet, (3, 56, 56), 10, 8, 4, 1, stages=("fits", "posteriors")),
    "transformer": Network(
        "an encoder of 2 layers, d = 32", partial(Encoder, 2, 32, 4, 64), (8, 32), 10, 32, 16, 1,
        stages=("fits",),
    ),
}  # fmt: skip


def networks(quick: bool, examples: int | None = None) -> dict[str, Network]:
    """Return the networks by name, with another number of examples where one is given."""
    table = QUICK if quick else FULL
    return table if examples is None else {name: replace(one, examples=examples) for name, one in table.items()}


def smallest() -> tuple[nn.Module, Batches]:
    """Return a network of a convolution and a linear layer with two batches, for a first run that is not measured."""
    make = partial(nn.Sequential, nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(18, 3))
    return Network("", make, (1, 5, 5), 3, 8, 4, 1).build()


def linear_layer(width: int, examples: int) -> Network:
    """Return one linear layer, as wide as it is high."""
    return Network(f"one linear layer, {width} × {width}", partial(nn.Linear, width, width), (width,), width, examples,
                   min(128, examples), 1)  # fmt: skip
