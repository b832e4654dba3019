"""Train a classifier of images, with checkpoints: an interrupted training goes on, a finished one is read.

Every epoch has a seed of its own for order, augmentation and dropout, so a training that was interrupted ends with the
same weights as one that was not.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from infoform.common.randomness import isolated
from infoform.common.same_work import Identity, refusal
from infoform.common.whole_files import writing

Augment = Callable[[Tensor], Tensor]  # a batch of scaled pictures -> another of the same shape or cropped


@dataclass(frozen=True)
class Training:
    """How a network is trained: Adam, with a constant learning rate or one that falls to zero along a cosine."""

    epochs: int
    batch_size: int = 128
    learning_rate: float = 1e-3
    l2: float = 0.0  # coefficient of ½ |θ|² in the loss
    cosine: bool = False

    def rate(self, share: float) -> float:
        """Return the learning rate after this share of the training."""
        return self.learning_rate * ((1 + math.cos(math.pi * share)) / 2 if self.cosine else 1.0)


@dataclass(frozen=True, eq=False)
class Shuffled:
    """A loader: images in another order, and augmented anew, at each pass; global generators decide."""

    images: Tensor  # (N, C, H, W)
    labels: Tensor  # (N,)
    batch_size: int
    augment: Augment | None = None

    def __len__(self) -> int:
        return math.ceil(len(self.images) / self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for part in torch.randperm(len(self.images)).split(self.batch_size):
            batch = self.images[part]
            yield batch if self.augment is None else self.augment(batch), self.labels[part]


@dataclass(frozen=True)
class Trained:
    """A network, in evaluation mode, and how its training went."""

    network: nn.Module
    losses: list[float]  # mean of every epoch, with dropout and augmentation
    seconds: float


def train(
    factory: Callable[[], nn.Module],
    images: Tensor,  # (N, C, H, W)
    labels: Tensor,  # (N,)
    *,
    training: Training,
    seed: int,
    path: Path,
    augment: Augment | None = None,
    report: Callable[[str], None] = print,
) -> Trained:
    """Return the network that `factory` makes from this seed, trained; `path` keeps it after every epoch."""
    with isolated(seed):
        network = factory()
    optimizer = torch.optim.Adam(network.parameters(), training.learning_rate, weight_decay=training.l2)
    settings = {**asdict(training), "seed": seed, "examples": len(images)}
    losses, seconds = _resume(path, network, optimizer, settings) if path.exists() else ([], 0.0)
    loader = Shuffled(images, labels, training.batch_size, augment)
    for epoch in range(len(losses), training.epochs):
        begun = time.perf_counter()
        with isolated(1_000_003 * (seed + 1) + epoch):
            network.train()
            total = 0.0
            for step, (batch, targets) in enumerate(loader):
                for group in optimizer.param_groups:
                    group["lr"] = training.rate((epoch + step / len(loader)) / training.epochs)
                loss = functional.cross_entropy(network(batch), targets)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += float(loss.detach()) * len(batch)
        losses.append(total / len(images))
        seconds += time.perf_counter() - begun
        _save(path, network, optimizer, {"settings": settings, "losses": losses, "seconds": seconds})
        report(f"{path.stem}: epoch {epoch + 1} of {training.epochs}, loss {losses[-1]:.4f}, {seconds:.0f} s")
    network.eval()
    return Trained(network, losses, seconds)


def _save(path: Path, network: nn.Module, optimizer: torch.optim.Optimizer, facts: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path) as file:
        torch.save({"network": network.state_dict(), "optimizer": optimizer.state_dict(), **facts}, file)


def _resume(
    path: Path, network: nn.Module, optimizer: torch.optim.Optimizer, settings: dict[str, Any]
) -> tuple[list[float], float]:
    saved = torch.load(path, weights_only=True)
    differences = Identity(settings).differences(saved["settings"])
    if differences:
        what = f"'{path}' holds a network trained with other settings"
        raise ValueError(refusal(what, differences, remedy="move it away, or choose another cache"))
    network.load_state_dict(saved["network"])
    optimizer.load_state_dict(saved["optimizer"])
    return list(saved["losses"]), float(saved["seconds"])
