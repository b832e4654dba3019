"""Frozen samples as one graph: M networks with sampled weights, or M sampled last layers on shared features.

Networks come in opposite pairs, θ + δ and θ − δ, as they do in `Laplace.predict(kind="mc")`: M networks take the bytes
of M / 2 deviations, and θ is stored once. The trained network runs too, for its own outputs and for novelty.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from infoform.export.inputs import GraphInputs
from infoform.export.network import Network
from infoform.export.outputs import Computed, read_outputs_of
from infoform.export.stored_weights import StoredWeights
from infoform.prediction import Novelty

MEANS = {"float32": "float32", "float16": "float16", "int8": "float16"}  # how θ itself is stored: in no less than half


class _DrawnGraph(nn.Module):
    """What graphs of M draws share: `finish` reads it."""

    def __init__(
        self, network: Network, inputs: GraphInputs, pairs: int, *, temperature: float, noise: float | None
    ) -> None:
        super().__init__()
        self.network, self.inputs, self.pairs = network, inputs, pairs
        self.temperature, self.noise = temperature, noise
        self.samples, self.link = 2 * pairs, None


class SampledGraph(_DrawnGraph):
    """M networks with sampled weights, opposite ones side by side.

    Args:
        network: with the parameters of the sampled layers stored elsewhere, which is here.
        inputs: form of the inputs.
        means: trained values of the sampled parameters, by name.
        deviations: M / 2 deviations from them, (M / 2, *shape) each.
        temperature: T that outputs are divided by.
        noise: standard deviation of the targets, of a regression.
        precision: how deviations are stored.
    """

    def __init__(
        self,
        network: Network,
        inputs: GraphInputs,
        means: Mapping[str, Tensor],
        deviations: Mapping[str, Tensor],
        *,
        temperature: float,
        noise: float | None,
        precision: str,
    ) -> None:
        pairs = len(next(iter(deviations.values())))
        super().__init__(network, inputs, pairs, temperature=temperature, noise=noise)
        self.means = StoredWeights(means, MEANS[precision])
        every = {f"{pair}/{name}": one[pair] for name, one in deviations.items() for pair in range(self.pairs)}
        self.deviations = StoredWeights(every, precision)

    def forward(self, *tensors: Tensor) -> dict[str, Tensor]:
        """Return all outputs by name."""
        batch = self.inputs.batch(tensors)
        means, deviations = self.means.restored(), self.deviations.restored()
        seen = self.network.see(batch, means)
        outputs = [
            self.network.outputs(
                batch, {name: mean + sign * deviations[f"{pair}/{name}"] for name, mean in means.items()}
            )
            for pair in range(self.pairs)
            for sign in (1, -1)
        ]
        return finish(self, seen.outputs, torch.stack(outputs), seen.novelty)


class SampledHeadsGraph(_DrawnGraph):
    """M sampled last layers on the features of one forward pass.

    Args:
        network: with its last layer as head.
        inputs: form of the inputs.
        deviations: M / 2 deviations of the last layer's matrix, (M / 2, G, A).
        temperature: T that outputs are divided by.
        noise: standard deviation of the targets, of a regression.
        precision: how deviations are stored.
    """

    def __init__(
        self,
        network: Network,
        inputs: GraphInputs,
        deviations: Tensor,
        *,
        temperature: float,
        noise: float | None,
        precision: str,
    ) -> None:
        super().__init__(network, inputs, len(deviations), temperature=temperature, noise=noise)
        self.deviations = StoredWeights({"heads": deviations.flatten(0, 1)}, precision)

    def forward(self, *tensors: Tensor) -> dict[str, Tensor]:
        """Return all outputs by name."""
        seen = self.network.see(self.inputs.batch(tensors), {})
        assert seen.head_inputs is not None
        plain, heads = seen.outputs, self.deviations.restored()["heads"]  # (N, C), (M / 2 · C, A)
        moved = (seen.head_inputs @ heads.to(plain.dtype).T).unflatten(1, (self.pairs, plain.shape[1]))
        moved = moved.transpose(0, 1)  # (M / 2, N, C)
        outputs = torch.stack([plain + moved, plain - moved], dim=1).flatten(0, 1)
        return finish(self, plain, outputs, seen.novelty)


def finish(graph: _DrawnGraph, plain: Tensor, outputs: Tensor, novelty: Novelty | None) -> dict[str, Tensor]:
    """Return what outputs (M, N, C) of several networks make, by name."""
    prediction = graph.network.likelihood.from_samples(outputs / graph.temperature, plain, noise=graph.noise)
    variance = outputs.var(0, correction=1)
    return read_outputs_of(Computed(plain, replace(prediction, input_novelty=novelty), variance=variance))
