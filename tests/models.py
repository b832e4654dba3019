"""Tiny networks in float64 with 3 outputs, one for each kind of layer, and of use of it, that a fit must get right."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Case(NamedTuple):
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    layers: tuple[str, ...]  # those that get a posterior

    def model(self) -> nn.Module:
        torch.manual_seed(0)
        return self.build().double()

    def inputs(self, examples: int = 5) -> Tensor:
        return torch.randn(examples, *self.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


class TokenPool(nn.Module):
    """(N, T, d) -> (N, d)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)


class Residual(nn.Module):
    """x + f(x), with the sum in place."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.inner(x)
        x += 1
        return x


class Recurrent(nn.Module):
    """One layer called three times in a forward pass, the last time for nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Linear(4, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.shared(self.shared(x).tanh()).tanh()
        self.shared(hidden)
        out = self.head(hidden)
        assert isinstance(out, Tensor)
        return out


class Tied(nn.Module):
    """Two convolutions of different strides with the same weight and bias."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(2, 2, 3, padding=1)
        self.second = nn.Conv1d(2, 2, 3, stride=2)
        self.second.weight, self.second.bias = self.first.weight, self.first.bias
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        out = self.head(self.second(self.first(x).tanh()).flatten(1))
        assert isinstance(out, Tensor)
        return out


@dataclass
class Output:
    """What a Hugging Face model returns."""

    logits: Tensor


class Wrapped(nn.Module):
    """Takes keyword arguments and returns an object with .logits, as Hugging Face models do."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, pixel_values: Tensor, scale: float = 1.0, labels: Tensor | None = None) -> Output:
        assert labels is None, "the loss is no business of the model here"
        return Output(self.inner(pixel_values * scale))


MODELS: dict[str, Case] = {
    "linear": Case(lambda: nn.Sequential(nn.Linear(4, 2), nn.Tanh(), nn.Linear(2, 3)), (4,), ("0", "2")),
    "linear without bias": Case(
        lambda: nn.Sequential(nn.Linear(4, 2, bias=False), nn.Tanh(), nn.Linear(2, 3, bias=False)), (4,), ("0", "2")
    ),
    "linear on tokens": Case(
        lambda: nn.Sequential(nn.Linear(4, 2), nn.Tanh(), nn.Linear(2, 3), TokenPool()), (3, 4), ("0", "2")
    ),
    "in-place activation of tokens": Case(
        lambda: nn.Sequential(
            nn.Linear(4, 5), nn.ELU(inplace=True), nn.Linear(5, 3), nn.ELU(inplace=True), TokenPool()
        ),
        (3, 4),
        ("0", "2"),
    ),
    "conv1d": Case(
        lambda: nn.Sequential(nn.Conv1d(2, 3, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(12, 3)),
        (2, 4),
        ("0", "3"),
    ),
    "conv2d": Case(
        lambda: nn.Sequential(
            nn.Conv2d(2, 3, 2, stride=2, padding=1, padding_mode="circular"), nn.Tanh(), nn.Flatten(), nn.Linear(12, 3)
        ),
        (2, 3, 2),
        ("0", "3"),
    ),
    "conv3d": Case(
        lambda: nn.Sequential(nn.Conv3d(1, 2, 2, dilation=(2, 1, 1)), nn.Tanh(), nn.Flatten(), nn.Linear(8, 3)),
        (1, 3, 3, 3),
        ("0", "3"),
    ),
    "grouped conv": Case(
        lambda: nn.Sequential(
            nn.Conv2d(4, 6, 2, groups=2), nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3)
        ),
        (4, 3, 3),
        ("0", "4"),
    ),
    "depthwise conv": Case(
        lambda: nn.Sequential(
            nn.Conv1d(3, 3, 3, groups=3), nn.Tanh(), nn.Conv1d(3, 2, 1), nn.Flatten(), nn.Linear(6, 3)
        ),
        (3, 5),
        ("0", "2", "4"),
    ),
    "conv with one position": Case(
        lambda: nn.Sequential(nn.Conv2d(2, 3, 2), nn.Flatten(), nn.Linear(3, 3)), (2, 2, 2), ("0", "2")
    ),
    "grouped conv with one position": Case(
        lambda: nn.Sequential(nn.Conv1d(4, 6, 3, groups=2), nn.Flatten(), nn.Linear(6, 3)), (4, 3), ("0", "2")
    ),
    "in-place activation": Case(
        lambda: nn.Sequential(
            nn.Conv2d(1, 3, 2), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(12, 3), nn.ELU(inplace=True)
        ),
        (1, 3, 3),
        ("0", "3"),
    ),
    "nested blocks with residual connections": Case(
        lambda: nn.Sequential(
            nn.Sequential(
                Residual(nn.Sequential(nn.Conv1d(2, 3, 3, padding=1), nn.ReLU(inplace=True), nn.Conv1d(3, 2, 1))),
                Residual(nn.Conv1d(2, 2, 3, padding=1, bias=False)),
            ),
            nn.Flatten(),
            nn.Linear(8, 3),
        ),
        (2, 4),
        ("0.0.inner.0", "0.0.inner.2", "0.1.inner", "2"),
    ),
    "layer called several times": Case(Recurrent, (4,), ("shared", "head")),
    "tied weights": Case(Tied, (2, 5), ("first", "head")),
    "transformer": Case(
        lambda: nn.Sequential(
            nn.TransformerEncoderLayer(4, 2, dim_feedforward=5, dropout=0.0, batch_first=True),
            TokenPool(),
            nn.Linear(4, 3),
        ),
        (3, 4),
        ("0.self_attn", "0.self_attn.out_proj", "0.linear1", "0.linear2", "2"),
    ),
    "transposed conv": Case(
        lambda: nn.Sequential(
            nn.ConvTranspose1d(4, 2, 2, stride=2, groups=2), nn.Tanh(), nn.Flatten(), nn.Linear(12, 3)
        ),
        (4, 3),
        ("0", "3"),
    ),
    "objects with logits": Case(lambda: Wrapped(nn.Linear(4, 3)), (4,), ("inner",)),
}
