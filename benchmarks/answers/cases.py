"""The networks whose answers are measured, and their inputs.

The definitions of the CIFAR networks are read from this checkout by path: the process that measures another version of
the library must build the same networks, and that version may not have them.
"""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from benchmarks.speed.networks import FULL as TRAINED_BRIEFLY
from benchmarks.speed.networks import QUICK as TINY
from benchmarks.speed.networks import calibrate_norms, clusters
from torch import Tensor, nn

SOURCE = Path(__file__).resolve().parents[2] / "src" / "infoform"
ALL_WAYS = ("temperature", "last", "linear", "mc20", "mc100", "linear-mc")
EXAMPLES = 3000  # that the two small networks are trained on


@dataclass(frozen=True)
class Case:
    """A network with its inputs, and what is asked of it."""

    title: str
    make: Callable[[Path | None, int], tuple[nn.Module, Tensor, Tensor]]  # cifar10.npz or None, how many inputs
    last: str  # the name of its last layer
    batch: int = 128
    inputs: int = 1000
    fitted: int = 512  # inputs that the curvature is measured on
    ways: tuple[str, ...] = ALL_WAYS
    tuned: tuple[int, ...] = ()  # numbers of validation inputs
    scored: bool = False  # whether the quality of its answers is asked for


def cifar_resnets() -> Any:
    """Return the module with the CIFAR networks of this checkout, whichever version of infoform is imported."""
    path = SOURCE / "experiments" / "networks" / "cifar_resnets.py"
    spec = importlib.util.spec_from_file_location("cifar_resnets_of_this_checkout", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def small(name: str, quick: bool) -> Callable[[Path | None, int], tuple[nn.Module, Tensor, Tensor]]:
    """Return what makes the MLP or the LeNet, trained briefly on made-up clusters of MNIST's shape."""

    def make(_: Path | None, count: int) -> tuple[nn.Module, Tensor, Tensor]:
        network = replace((TINY if quick else TRAINED_BRIEFLY)[name], examples=EXAMPLES if not quick else 300)
        model, batches = network.build()
        inputs, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
        return model, inputs[:count], labels[:count]

    return make


def cifar(depth: int) -> Callable[[Path | None, int], tuple[nn.Module, Tensor, Tensor]]:
    """Return what makes a public CIFAR-10 ResNet, with test pictures where there are any."""

    def make(pictures: Path | None, count: int) -> tuple[nn.Module, Tensor, Tensor]:
        resnets = cifar_resnets()
        if pictures is None:
            return resnets.load(depth), *clusters(count, (3, 32, 32), 10)
        pixels, labels = read_cifar(pictures, "test", slice(count))
        return resnets.load(depth), resnets.scaled(pixels), labels

    return make


def read_cifar(path: Path, part: str, rows: slice) -> tuple[Tensor, Tensor]:  # -> (N, 3, 32, 32) bytes, (N,)
    """Return rows of one part of cifar10.npz."""
    import numpy as np

    with np.load(path) as arrays:
        pixels, labels = arrays[f"{part}_images"][rows], arrays[f"{part}_labels"][rows]
    return torch.tensor(pixels).permute(0, 3, 1, 2).contiguous(), torch.tensor(labels.astype("int64"))


def thin_cifar(_: Path | None, count: int) -> tuple[nn.Module, Tensor, Tensor]:
    """Return a CIFAR ResNet of one block a stage and four channels, at a random start."""
    torch.manual_seed(0)
    inputs, labels = clusters(count, (3, 32, 32), 10)
    model = cifar_resnets().CifarResNet(1, width=4)
    calibrate_norms(model, inputs)
    return model.eval(), inputs, labels


def resnet50(_: Path | None, count: int) -> tuple[nn.Module, Tensor, Tensor]:
    """Return ResNet-50 with the weights that were trained on ImageNet, and made-up pictures."""
    from infoform.experiments.imagenet.networks import NETWORKS

    return NETWORKS["resnet50"].load(), *clusters(count, (3, 224, 224), 1000)


def thin_resnet50(_: Path | None, count: int) -> tuple[nn.Module, Tensor, Tensor]:
    """Return one stage of bottlenecks with 50 classes."""
    from infoform.experiments.imagenet.networks import ResNet

    torch.manual_seed(0)
    return ResNet((1,), classes=50).eval(), *clusters(count, (3, 32, 32), 50)


FULL = {
    "mlp": Case("MLP 784-1024-1024-10", small("mlp", False), "5", tuned=(1000,)),
    "lenet": Case("the paper's LeNet", small("lenet", False), "9", tuned=(1000,)),
    "resnet20": Case("ResNet-20, CIFAR-10", cifar(20), "fc", tuned=(200, 1000), scored=True),
    "resnet56": Case("ResNet-56, CIFAR-10", cifar(56), "fc", scored=True),
    "resnet50": Case("ResNet-50, 1,000 classes", resnet50, "fc", 8, 20, 16, ways=("temperature", "last")),
}
QUICK = {
    "mlp": Case("MLP 784-64-64-10", small("mlp", True), "5", 16, 64, 64, tuned=(32,)),
    "resnet20": Case("a thin CIFAR ResNet", thin_cifar, "fc", 8, 32, 32),
    "resnet50": Case("one stage of bottlenecks", thin_resnet50, "fc", 4, 8, 8, ways=("temperature", "last")),
}


def cases(quick: bool) -> dict[str, Case]:
    """Return the networks by name."""
    return QUICK if quick else FULL
