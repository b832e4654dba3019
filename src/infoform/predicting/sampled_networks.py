"""Networks with sampled weights, run over several batches together: weights are drawn for all of them at once.

Every batch sees the same networks, those of the seed. Batches are held in groups of at most `GROUP_BYTES`, and each
network, once drawn, runs over a whole group: to draw a large network takes longer than to run it over a small batch.
The outputs are, bit by bit, those of one batch at a time.

Networks come in opposite pairs, θ + δ and θ − δ. Each has the posterior's distribution, and what an average over
networks owes to the first order in δ cancels: probabilities are 2.5 to 12 times nearer to those of very many networks
(measured on digits), for half the drawing.

Networks made linear share the trained network's own activations: several deviations go through it together, with as
many examples at a time as a processor's cache holds.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from threading import RLock
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from infoform.common.vmap_or_loop import VMAP_WEIGHTS, VmapOrLoop
from infoform.network.attention_setting import plain_attention
from infoform.network.batches import Batch, batch_size, split_batch
from infoform.network.capture import capturing, evaluation_mode
from infoform.predicting.directional import DirectionalDerivative

if TYPE_CHECKING:
    from infoform.predicting.predictor import Predictor

GROUP_BYTES = 64 * 2**20  # of inputs and sampled outputs that are held at a time; a batch alone may have more
OFTEN = 8  # batches at a time, at most, where results are wanted often; at first one, then two, ...
DRAWN_BYTES = 64 * 2**20  # of weights that are drawn side by side
LINEAR_NETWORKS = 10  # made linear that are run together: more of them gain little
LINEAR_BYTES = 8 * 2**20  # of the largest output of a layer, for all examples and networks that are run together


@dataclass(frozen=True)
class SampledOutputs:
    """What the sampled networks, and the trained one, put out for a batch."""

    outputs: Tensor  # (M, N, C): of the sampled networks; with positions, (M, R, C) of all rows
    plain: Tensor  # (N, *P, C): of the trained one


@dataclass(frozen=True)
class SampledNetworks:
    """A predictor's model with weights drawn from its posterior, exact or made linear in them."""

    predictor: "Predictor"
    linear: bool

    def over(
        self,
        batches: Iterable[Batch],
        *,
        samples: int,
        seed: int,
        often: bool = False,
        tick: Callable[[int], None] | None = None,
    ) -> Iterator[SampledOutputs]:
        """Give the outputs for one batch after the other.

        Args:
            batches: batches of at least one example.
            samples: number of networks; of an odd number the last has no opposite.
            seed: seed of their weights.
            often: whether outputs come after a few batches, and not only when `GROUP_BYTES` are full.
            tick: called with the size of a batch whenever its share of the work is done.
        """
        for group in self._groups(batches, samples, often=often):
            generator = torch.Generator().manual_seed(seed)
            every = self.outputs([batch for batch, _ in group], samples=samples, generator=generator, tick=tick)
            for (_, plain), outputs in zip(group, every, strict=True):
                yield SampledOutputs(outputs, plain)

    def outputs(
        self,
        batches: Sequence[Batch],
        *,
        samples: int,
        generator: torch.Generator,
        tick: Callable[[int], None] | None = None,
    ) -> list[Tensor]:  # -> (M, N, C) a batch
        """Return the outputs of the same sampled networks for all batches, opposite ones side by side."""
        predictor, posterior = self.predictor, self.predictor.posterior
        means = {name: predictor.layers[name].mean for name in posterior.layers}
        at = predictor.as_parameters({name: mean.clone() for name, mean in means.items()}) if self.linear else {}
        pairs = -(-samples // 2)
        step = self._networks_at_once(pairs)
        times = 1 if step > 1 else self._drawn_at_once(pairs)
        size = self._examples_at_once(batches[0], times) if self.linear and times > 1 else None
        derivative = DirectionalDerivative()
        runs = [
            [self._run(part, at, derivative) for part in ([batch] if size is None else split_batch(batch, size))]
            for batch in batches
        ]
        compute = VmapOrLoop()
        # neither vmap nor forward-mode differentiation has rules for fused attention
        attention = plain_attention if self.linear or step > 1 else nullcontext
        one_at_a_time = _FORWARD_MODE if self.linear else nullcontext()
        parts: list[list[Tensor]] = [[] for _ in batches]
        draws: list[dict[str, Tensor]] = []  # the memory of some draws serves the next, whose outputs are copies
        drawn: dict[str, Tensor] = {}
        start = 0
        with evaluation_mode(predictor.model), torch.no_grad():
            while start < pairs:
                count = min(step * times if draws or self.linear else step, pairs - start)
                if step > 1:
                    draws = [posterior.sample(count, generator=generator, out=draws[0] if draws else None)]
                else:
                    # the first draw is alone: it computes, with all threads, what the others share
                    first = [] if draws else posterior.sample_each(1, generator=generator)
                    rest = count - len(first)
                    draws = first + (posterior.sample_each(rest, generator=generator, out=draws) if rest else [])
                for deviations in _stacked(draws) if self.linear else draws:
                    each = len(next(iter(deviations.values())))
                    by_sign: list[list[Tensor]] = [[] for _ in batches]  # (each, N, C) for + and -; if linear, of both
                    for sign in (1,) if self.linear else (1, -1):
                        drawn = self._parameters(means, deviations, drawn, sign=sign)
                        for of_batch, found in zip(runs, by_sign, strict=True):
                            with attention(), one_at_a_time:
                                found.append(torch.cat([compute(run, drawn, each) for run in of_batch], dim=-2))
                    for part, found in zip(parts, by_sign, strict=True):
                        part.append((found[0] if self.linear else torch.stack(found, dim=1)).flatten(0, 1))
                if tick is not None:
                    done = slice(*(number * len(batches) // pairs for number in (start, start + count)))
                    for batch in batches[done]:
                        tick(batch_size(batch))
                start += count
            return [torch.cat(parts.pop(0))[:samples] for _ in batches]

    def _groups(self, batches: Iterable[Batch], samples: int, *, often: bool) -> Iterator[list[tuple[Batch, Tensor]]]:
        """Give as many batches at a time as `GROUP_BYTES` hold, each with the trained network's outputs."""
        group: list[tuple[Batch, Tensor]] = []
        held, most = 0, 1
        for batch in batches:
            plain = self.predictor.outputs(batch)
            size = sum(tensor.nbytes for tensor in batch.tensors()) + samples * plain.nbytes
            if group and held + size > GROUP_BYTES:
                yield group
                group, held = [], 0
            group.append((batch, plain))
            held += size
            if often and len(group) == most:
                yield group
                group, held, most = [], 0, min(OFTEN, 2 * most)
        if group:
            yield group

    def _run(
        self, batch: Batch, at: dict[str, Tensor], derivative: DirectionalDerivative
    ) -> Callable[[Mapping[str, Tensor]], Tensor]:
        """Return what gives a batch's outputs for drawn parameters; where linear, those for ± deviations from `at`."""
        predictor, buffers = self.predictor, self.predictor.buffers()
        if not self.linear:
            return lambda parameters: predictor.forward(batch, {**buffers, **parameters})

        def run(tangents: Mapping[str, Tensor]) -> Tensor:
            result = derivative(lambda parameters: predictor.forward(batch, {**buffers, **parameters}), at, tangents)
            return torch.stack([result[0] + result[1], result[0] - result[1]])  # (2, N, C)

        return run

    def _parameters(
        self, means: Mapping[str, Tensor], deviations: Mapping[str, Tensor], out: Mapping[str, Tensor], *, sign: int
    ) -> dict[str, Tensor]:
        """Return the parameters at these deviations, in the memory of `out`, if it fits; where linear, the deviations.

        They are contiguous, which products with them need to be fast; fresh pages would cost more than numbers.
        """
        cut = self.predictor.as_parameters
        moved = cut({name: deviation.to(means[name]) for name, deviation in deviations.items()})
        if self.linear:
            return moved
        parameters = {}
        for name, mean in cut(means).items():
            old = out.get(name)
            memory = old if old is not None and old.shape == moved[name].shape else torch.empty_like(moved[name])
            parameters[name] = torch.add(mean, moved[name], alpha=sign, out=memory)
        return parameters

    def _drawn_at_once(self, samples: int) -> int:
        """Return how many networks are drawn side by side: as many as there are threads, or are run together."""
        posterior = self.predictor.posterior
        size = sum(layer.shape[0] * layer.shape[1] * layer.dtype.itemsize for layer in posterior.layers.values())
        most = LINEAR_NETWORKS if self.linear else torch.get_num_threads()
        return max(1, min(samples, most, DRAWN_BYTES // size))

    def _examples_at_once(self, batch: Batch, networks: int) -> int:
        """Return how many examples so many networks made linear are run on, seen from a run with one example."""
        predictor = self.predictor
        with capturing(
            predictor.model, {name: predictor.layers[name] for name in predictor.posterior.layers}
        ) as capture:
            capture.forward(next(split_batch(batch, 1)))
        return max(1, LINEAR_BYTES // (networks * max(capture.output_bytes, default=LINEAR_BYTES)))

    def _networks_at_once(self, samples: int) -> int:
        """Return how many networks are run together: one, unless they are small and of layers that gain from it."""
        layers, posterior = self.predictor.layers, self.predictor.posterior
        weights = sum(layer.shape[0] * layer.shape[1] for layer in posterior.layers.values())
        batched = all(layers[name].rule.runs_batched for name in posterior.layers)
        return min(samples, max(1, 2**22 // weights)) if batched and weights <= VMAP_WEIGHTS else 1


def _stacked(draws: Sequence[Mapping[str, Tensor]]) -> list[dict[str, Tensor]]:  # (1, G, A) each -> (M, G, A)
    return [{name: torch.cat([draw[name] for draw in draws]) for name in draws[0]}]


_FORWARD_MODE = RLock()  # torch has one level of forward-mode differentiation for all threads
