"""One batch through the network, and its Fisher vectors back: what every layer got in and got back."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from infoform.common.randomness import UniformStream, hashed_uniforms
from infoform.fitting.reading import BatchPart
from infoform.fitting.recall import RecallingCapture
from infoform.likelihoods import Likelihood
from infoform.likelihoods.positions import RowTargets, positions_of
from infoform.network.batches import token_mask
from infoform.network.capture import Call


@dataclass(frozen=True)
class FisherGradients:
    """A network with its layers tapped, and the Fisher vectors of its likelihood."""

    capture: RecallingCapture
    likelihood: Likelihood
    fisher: str
    samples: int  # Fisher vectors of an example, where they are sampled

    @property
    def single(self) -> bool:
        """Whether an example has one Fisher vector."""
        return self.fisher != "exact" and self.samples == 1

    def forward(self, part: BatchPart, *, checked: bool) -> tuple[Tensor, RowTargets]:  # (N, *P, C)
        """Return the outputs for a part of a batch, and the targets of the rows that count, all of them checked.

        Args:
            part: The arguments of the model, the targets, and the place of the examples in the order of this process.
            checked: Whether the inputs are known to be finite.
        """
        batch = part.batch
        for x in () if checked else batch.tensors():
            if not all_finite(x):
                raise ValueError("the inputs must be finite, got NaN or infinity; clean the data.")
        outputs = self.likelihood.arrange_outputs(self.capture.forward(part))
        if not all_finite(outputs):
            raise ValueError(f"the outputs must be finite, got NaN or infinity{self._first_bad_layer()}.")
        likelihood, own = self.likelihood, outputs.detach()
        if len(outputs) == 0:
            return outputs, RowTargets(None, None)
        if batch.targets is not None:
            return outputs, likelihood.row_targets(likelihood.arrange_targets(batch.targets, own), own)
        if self.fisher == "empirical":
            raise ValueError(
                "fisher='empirical' needs targets, got inputs alone; use fisher='mc', or give (x, y) batches."
            )
        return outputs, likelihood.row_targets(None, own, mask=token_mask(batch))

    def vectors(
        self, outputs: Tensor, targets: RowTargets, uniforms: Tensor
    ) -> Iterator[tuple[Tensor, bool]]:  # (N, *P, C), (N, V, ...) -> (N, *P, C)
        """Yield the Fisher vectors, and whether each is the last of its batch."""
        uniforms = uniforms.to(outputs) if outputs.device.type == "mps" else uniforms.to(outputs.device)
        likelihood, positions = self.likelihood, math.prod(positions_of(outputs))
        count = likelihood.num_vectors(outputs.shape[-1], self.fisher, self.samples, positions)
        vectors = likelihood.fisher_vectors(
            outputs.detach(), self.fisher, targets=targets.targets, uniforms=uniforms, rows=targets.rows
        )
        for number, vector in enumerate(vectors, start=1):
            yield vector, number == count

    def _first_bad_layer(self) -> str:
        for name, calls in self.capture.calls.items():
            if not all(all_finite(call.inputs) for call in calls):
                return f": first seen in the inputs of layer '{name}'; check the weights of the layers before it"
        return " from finite inputs of every layer; check the model's last layers"


class SampledUniforms:
    """The random numbers of one pass, by the number of an example: they do not depend on what else is read."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._stream: UniformStream | None = None
        self._drawn = 0  # examples whose numbers the stream has given

    def of(self, numbers: range, shape: tuple[int, int], *, positions: int | None = None) -> Tensor:
        """Return the random numbers of some examples, which come after those of the call before.

        Args:
            numbers: The numbers of the examples.
            shape: Of the random numbers of an example, (V, noise_width).
            positions: How many positions P have numbers of their own; None for one answer an example.

        Returns:
            The random numbers, (N, V, noise_width), or (N, V, P, noise_width).
        """
        if positions is not None:
            axes = (torch.tensor(numbers), *(torch.arange(size) for size in (shape[0], positions, shape[1])))
            counters = [one.view(-1, *[1] * (3 - place)) for place, one in enumerate(axes)]
            return hashed_uniforms(self._seed, *counters)
        if self._stream is None:
            self._stream = UniformStream(self._seed, shape)
        self._stream.skip(numbers.start - self._drawn)
        drawn = self._stream.take(numbers[-1] + 1 - numbers.start)
        self._drawn = numbers[-1] + 1
        return drawn[:: numbers.step]


def check_independence(model: nn.Module) -> None:
    """Raise if the model mixes the examples of a batch even in evaluation mode."""
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and module.running_mean is None:
            raise ValueError(
                f"'{name}' is a {type(module).__name__} without running statistics, so the examples of a batch "
                "influence each other and have no gradient of their own; use track_running_stats=True."
            )


def is_finite(call: Call) -> bool:
    """Whether what a layer got in, and got back, is finite."""
    return all_finite(call.inputs) and call.gradients is not None and all_finite(call.gradients)


def all_finite(x: Tensor) -> bool:
    """Whether all numbers of a tensor are finite."""
    if not (x.is_floating_point() or x.is_complex()):
        return True
    # a finite sum is proof enough and costs one cheap pass; only an infinite one needs the closer look
    return math.isfinite(abs(x.sum().item())) or bool(x.isfinite().all())
