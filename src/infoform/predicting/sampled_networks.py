"""Networks with sampled weights, run over several batches together: weights are drawn for all of them at once.

Every batch sees the same networks, those of the seed. Batches are held in groups of at most `GROUP_BYTES`, and each
network, once drawn, runs over a whole group: to draw a large network takes longer than to run it over a small batch.
The outputs are, bit by bit, those of one batch at a time.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp
from torch.nn.attention import SDPBackend, sdpa_kernel

from infoform.likelihoods import Likelihood
from infoform.network.batches import Batch, batch_size, read_outputs
from infoform.network.capture import evaluation_mode, unfused_encoder
from infoform.network.layer import Layer
from infoform.posteriors.network_posterior import Posterior

GROUP_BYTES = 64 * 2**20  # of inputs and sampled outputs that are held at a time; a batch alone may have more
OFTEN = 8  # batches at a time, at most, where results are wanted often; at first one, then two, ...
DRAWN_BYTES = 64 * 2**20  # of weights that are drawn side by side
VMAP_WEIGHTS = 50_000  # networks up to this size are run several at a time: their cost is in the calls, not the numbers


@dataclass(frozen=True)
class Sampled:
    """What the networks gave for a batch."""

    outputs: Tensor  # (M, N, C): of the sampled networks
    plain: Tensor  # (N, C): of the trained one


@dataclass(frozen=True)
class SampledNetworks:
    """A model with weights from a posterior, exact or made linear in them; the model is left as found."""

    model: nn.Module
    layers: Mapping[str, Layer]
    likelihood: Likelihood
    posterior: Posterior
    linear: bool

    def over(
        self,
        batches: Iterable[Batch],
        *,
        samples: int,
        seed: int,
        often: bool = False,
        tick: Callable[[int], None] | None = None,
    ) -> Iterator[Sampled]:
        """Give the outputs for one batch after the other, `often` or when as many as possible are done.

        A tick comes whenever a batch's share of the work is done.
        """
        for group in self._groups(batches, samples, often=often):
            generator = torch.Generator().manual_seed(seed)
            every = self.outputs([batch for batch, _ in group], samples=samples, generator=generator, tick=tick)
            for (_, plain), outputs in zip(group, every, strict=True):
                yield Sampled(outputs, plain)

    def plain(self, batch: Batch) -> Tensor:  # -> (N, C)
        """Return the trained network's own outputs."""
        with evaluation_mode(self.model), torch.no_grad():
            return self._forward(batch, self._buffers())

    def outputs(
        self,
        batches: Sequence[Batch],
        *,
        samples: int,
        generator: torch.Generator,
        tick: Callable[[int], None] | None = None,
    ) -> list[Tensor]:  # -> (M, N, C) a batch
        """Return the outputs of the same sampled networks for all batches."""
        means = {name: self.layers[name].mean for name in self.posterior.layers}
        at = self._cut({name: mean.clone() for name, mean in means.items()}) if self.linear else {}
        runs = [self._run(batch, at) for batch in batches]
        step = self._networks_at_once(samples)
        times = 1 if step > 1 else self._drawn_at_once(samples)
        attention = _unfused_attention() if self.linear or step > 1 else nullcontext()
        parts: list[list[Tensor]] = [[] for _ in batches]
        draws: list[dict[str, Tensor]] = []  # the memory of some draws serves the next, whose outputs are copies
        drawn: dict[str, Tensor] = {}
        start = 0
        with evaluation_mode(self.model), torch.no_grad(), attention:
            while start < samples:
                # the first draw is alone: it computes, with all threads, what the others share
                count = min(step * times if draws else step, samples - start)
                if step > 1:
                    draws = [self.posterior.sample(count, generator=generator, out=draws[0] if draws else None)]
                else:
                    draws = self.posterior.sample_each(count, generator=generator, out=draws)
                for deviations in draws:
                    drawn = self._parameters(means, deviations, drawn)
                    for run, part in zip(runs, parts, strict=True):
                        part.append(_run_all(run, drawn, count // len(draws)))
                if tick is not None:
                    done = slice(*(number * len(batches) // samples for number in (start, start + count)))
                    for batch in batches[done]:
                        tick(batch_size(batch))
                start += count
            return [torch.cat(parts.pop(0)) for _ in batches]

    def _groups(self, batches: Iterable[Batch], samples: int, *, often: bool) -> Iterator[list[tuple[Batch, Tensor]]]:
        """Give as many batches at a time as `GROUP_BYTES` hold, each with the trained network's outputs."""
        group: list[tuple[Batch, Tensor]] = []
        held, most = 0, 1
        for batch in batches:
            plain = self.plain(batch)
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

    def _run(self, batch: Batch, at: dict[str, Tensor]) -> Callable[[Mapping[str, Tensor]], Tensor]:
        """Return what gives a batch's outputs for drawn parameters; where linear, for their deviations from `at`."""
        buffers = self._buffers()
        if not self.linear:
            return lambda parameters: self._forward(batch, {**buffers, **parameters})

        def run(tangents: Mapping[str, Tensor]) -> Tensor:
            with warnings.catch_warnings():  # torch scripts its own rules at the first call, and warns of that
                warnings.filterwarnings("ignore", message=".*torch.jit.script", category=DeprecationWarning)
                result = jvp(lambda parameters: self._forward(batch, {**buffers, **parameters}), (at,), (tangents,))
            total: Tensor = result[0] + result[1]
            return total

        return run

    def _parameters(
        self, means: Mapping[str, Tensor], deviations: Mapping[str, Tensor], out: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return the parameters at these deviations, in the memory of `out`, if it fits; where linear, the deviations.

        They are contiguous, which products with them need to be fast; fresh pages would cost more than numbers.
        """
        moved = self._cut({name: deviation.to(means[name]) for name, deviation in deviations.items()})
        if self.linear:
            return moved
        found = {}
        for name, mean in self._cut(means).items():
            old = out.get(name)
            memory = old if old is not None and old.shape == moved[name].shape else torch.empty_like(moved[name])
            found[name] = torch.add(moved[name], mean, out=memory)
        return found

    def _cut(self, matrices: Mapping[str, Tensor]) -> dict[str, Tensor]:  # (..., G, A) a layer
        parameters: dict[str, Tensor] = {}
        for name, matrix in matrices.items():
            parameters.update(self.layers[name].as_parameters(matrix))
        return parameters

    def _forward(self, batch: Batch, state: dict[str, Tensor]) -> Tensor:
        outputs = functional_call(self.model, state, batch.args, batch.kwargs)
        return self.likelihood.check_outputs(read_outputs(outputs))

    def _buffers(self) -> dict[str, Tensor]:
        return {name: buffer.detach().clone() for name, buffer in self.model.named_buffers()}

    def _drawn_at_once(self, samples: int) -> int:
        """Return how many networks are drawn side by side, to be run one by one: as many as there are threads."""
        size = sum(layer.shape[0] * layer.shape[1] * layer.dtype.itemsize for layer in self.posterior.layers.values())
        return max(1, min(samples, torch.get_num_threads(), DRAWN_BYTES // size))

    def _networks_at_once(self, samples: int) -> int:
        weights = sum(layer.shape[0] * layer.shape[1] for layer in self.posterior.layers.values())
        linear = all(isinstance(self.layers[name].module, nn.Linear) for name in self.posterior.layers)
        return min(samples, max(1, 2**22 // weights)) if linear and weights <= VMAP_WEIGHTS else 1


def _run_all(run: Callable[[Mapping[str, Tensor]], Tensor], drawn: Mapping[str, Tensor], count: int) -> Tensor:
    """Return the outputs of all drawn networks, computed together where the model allows it."""
    if count > 1:
        try:
            return torch.vmap(run)(drawn)
        except RuntimeError:  # vmap has no rule for branches on values or for results written in place
            pass
    return torch.stack([run({name: value[index] for name, value in drawn.items()}) for index in range(count)])


@contextmanager
def _unfused_attention() -> Iterator[None]:
    # neither vmap nor forward-mode differentiation has rules for fused attention
    with unfused_encoder(), sdpa_kernel(SDPBackend.MATH):
        yield
