"""Networks with one hidden layer of ReLUs, many trained side by side: y = w₂ᵀ max(0, W₁ x + b₁) + b₂.

Each is so small that a step is all overhead, so R networks on R data sets of one size are one batched matrix product;
the gradient is written out, and Adam works on all weights as one tensor. The loss is the mean squared error of a
mini-batch plus `decay` · |θ|² / 2 for each network.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

DTYPES = {"float32": torch.float32, "float64": torch.float64}
CACHED_NUMBERS = 2**18  # activations held by networks that are trained together: what a processor's cache holds


@dataclass(frozen=True)
class Training:
    """How long, and how, networks are trained: Adam on mean squared errors."""

    epochs: int = 40
    batch_size: int = 128
    learning_rate: float = 1e-3
    dtype: str = "float64"  # of the training alone; float32 takes about half the time


@dataclass
class ShallowStack:
    """The weights of R networks, as views of one tensor."""

    flat: Tensor  # (R, P)
    num_inputs: int
    width: int
    hidden: Tensor = field(init=False)  # W₁ (R, A, H)
    hidden_bias: Tensor = field(init=False)  # (R, 1, H)
    output: Tensor = field(init=False)  # w₂ (R, H, 1)
    output_bias: Tensor = field(init=False)  # (R, 1, 1)

    def __post_init__(self) -> None:
        count, size = len(self.flat), self.num_inputs * self.width
        parts = self.flat.split([size, self.width, self.width, 1], dim=1)
        self.hidden = parts[0].view(count, self.num_inputs, self.width)
        self.hidden_bias, self.output = parts[1].view(count, 1, self.width), parts[2].view(count, self.width, 1)
        self.output_bias = parts[3].view(count, 1, 1)

    @classmethod
    def drawn(cls, count: int, num_inputs: int, width: int, *, generator: torch.Generator) -> "ShallowStack":
        """Draw weights as `nn.Linear` does: uniformly within 1/√(number of inputs)."""
        uniform = 2 * torch.rand(count, (num_inputs + 2) * width + 1, generator=generator, dtype=torch.float64) - 1
        first = (num_inputs + 1) * width
        uniform[:, :first] /= num_inputs**0.5
        uniform[:, first:] /= width**0.5
        return cls(uniform, num_inputs, width)

    def __call__(self, x: Tensor) -> Tensor:  # (R, N, A) -> (R, N, 1)
        active = torch.baddbmm(self.hidden_bias, x, self.hidden).relu_()
        return torch.baddbmm(self.output_bias, active, self.output)

    def network(self, index: int) -> nn.Sequential:
        """Return one of the networks as a module, in float64."""
        model = nn.Sequential(nn.Linear(self.num_inputs, self.width), nn.ReLU(), nn.Linear(self.width, 1)).double()
        state = {
            "0.weight": self.hidden[index].T,
            "0.bias": self.hidden_bias[index, 0],
            "2.weight": self.output[index].T,
            "2.bias": self.output_bias[index, 0],
        }
        model.load_state_dict(state)
        return model

    def copy(self) -> "ShallowStack":
        """Return the same networks with weights of their own."""
        return ShallowStack(self.flat.clone(), self.num_inputs, self.width)

    def gradient(self, x: Tensor, y: Tensor) -> "ShallowStack":  # (R, N, A), (R, N, 1)
        """Return the gradient of every network's mean squared error."""
        found = ShallowStack(torch.empty_like(self.flat), self.num_inputs, self.width)
        active = torch.baddbmm(self.hidden_bias, x, self.hidden).relu_()  # (R, N, H)
        readout = self.output.mT  # (R, 1, H)
        error = (active * readout).sum(2, keepdim=True).add_(self.output_bias).sub_(y).mul_(2 / x.shape[1])  # (R, N, 1)
        found.output[:] = torch.bmm(active.mT, error)
        found.output_bias[:] = error.sum(1, keepdim=True)
        back = torch.ops.aten.threshold_backward(error * readout, active, 0)  # (R, N, H)
        found.hidden[:] = torch.bmm(x.mT, back)
        found.hidden_bias[:] = back.sum(1, keepdim=True)
        return found


class StackedAdam:
    """Adam on the weights of a stack, with its usual constants, and a decay for each network."""

    def __init__(self, stack: ShallowStack, learning_rate: float, decay: Tensor | float = 0.0) -> None:
        self.stack, self.learning_rate = stack, learning_rate
        self.decay = decay.view(-1, 1) if isinstance(decay, Tensor) else decay
        self.mean, self.square = torch.zeros_like(stack.flat), torch.zeros_like(stack.flat)
        self.steps = 0

    def step(self, x: Tensor, y: Tensor) -> None:
        gradient = self.stack.gradient(x, y).flat
        if isinstance(self.decay, Tensor) or self.decay:
            gradient += self.decay * self.stack.flat
        self.steps += 1
        self.mean.lerp_(gradient, 0.1)
        self.square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        scale = self.square.div(1 - 0.999**self.steps).sqrt_().add_(1e-8)
        self.stack.flat.addcdiv_(self.mean, scale, value=-self.learning_rate / (1 - 0.9**self.steps))

    def epoch(self, x: Tensor, y: Tensor, batch_size: int, *, generator: torch.Generator) -> None:
        """Take one step for every mini-batch, each network's in an order of its own."""
        count, size = x.shape[:2]
        order = torch.rand(count, size, generator=generator).argsort(1)
        rows = torch.arange(count).unsqueeze(1)
        x, y = x[rows, order], y[rows, order]
        for start in range(0, size, batch_size):
            self.step(x[:, start : start + batch_size], y[:, start : start + batch_size])


def train_stack(
    x: Tensor,  # (R, N, A)
    y: Tensor,  # (R, N, 1)
    *,
    width: int,
    training: Training,
    decay: Tensor | float = 0.0,  # (R,)
    kept: Collection[int] = (),
    seed: int = 0,
) -> dict[int, ShallowStack]:
    """Return the networks after these numbers of epochs (always also after the last)."""
    together = max(1, CACHED_NUMBERS // (min(training.batch_size, x.shape[1]) * width))
    parts = []
    for first in range(0, len(x), together):
        group = slice(first, first + together)
        decays = decay[group] if isinstance(decay, Tensor) else decay
        parts.append(_train_group(x[group], y[group], width, training, decays, {*kept, training.epochs}, seed + first))
    shape = (x.shape[2], width)
    return {epoch: ShallowStack(torch.cat([part[epoch] for part in parts]).double(), *shape) for epoch in parts[0]}


def _train_group(
    x: Tensor, y: Tensor, width: int, training: Training, decay: Tensor | float, kept: set[int], seed: int
) -> dict[int, Tensor]:  # epoch -> (R, P)
    generator = torch.Generator().manual_seed(seed)
    dtype = DTYPES[training.dtype]
    drawn = ShallowStack.drawn(len(x), x.shape[2], width, generator=generator)
    stack = ShallowStack(drawn.flat.to(dtype), drawn.num_inputs, drawn.width)
    x, y, decay = x.to(dtype), y.to(dtype), decay.to(dtype) if isinstance(decay, Tensor) else decay
    optimizer = StackedAdam(stack, training.learning_rate, decay)
    found = {}
    for epoch in range(1, training.epochs + 1):
        optimizer.epoch(x, y, training.batch_size, generator=generator)
        if epoch in kept:
            found[epoch] = stack.flat.clone()
    return found
