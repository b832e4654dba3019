"""One pass over the data: batches through the model, gradients of every layer into its sums."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from infoform.common.digest import update_digest
from infoform.common.files import under
from infoform.common.float64 import in_double
from infoform.common.randomness import UniformStream, isolated
from infoform.curvature.request import CHUNK_BYTES
from infoform.curvature.subsampling import as_tensor
from infoform.fitting.accumulate import GradientAccumulator, shared_limit
from infoform.fitting.example_selection import WHOLE, ExampleSelector
from infoform.fitting.running_sums import Sums
from infoform.likelihoods import DataSummary, Likelihood
from infoform.network.batches import Batch, batch_size, read_batch, select_rows, split_batch
from infoform.network.capture import Call, Capture
from infoform.network.layer import Layer
from infoform.network.sharding import Shard


@dataclass
class PassProgress:
    """How far a pass has come, and what it knows of the data besides the sums."""

    batches: int = 0
    examples: int = 0
    num_outputs: int = 0
    log_likelihood: float = 0.0
    labelled: bool = True
    digest: int = 0  # of all batches, where the fit keeps checkpoints
    opening: int | None = None  # digest of the first batch

    def summary(self) -> DataSummary:
        return DataSummary(self.examples, self.num_outputs, self.log_likelihood if self.labelled else None)


@dataclass(frozen=True)
class PassRequest:
    """What one pass sums, by layer, and over which examples."""

    sums: Mapping[str, Sequence[Sums]]  # over all that are read
    of_chosen: Mapping[str, Sequence[Sums]] | None = None  # over those that the sieve chooses
    once: Mapping[str, Sequence[Sums]] | None = None  # over all; each example is added in one of the two
    share: float = 1.0  # of the batches, evenly spread, that are read
    again: bool = False  # whether those that the sieve has chosen are read, and no others
    scored: bool = True  # whether the likelihood of the labels is summed: one of two passes has no need to


@dataclass
class DataPass:
    """Everything that stays the same from pass to pass, and how far the present one has come."""

    capture: Capture
    loader: Iterable[Any]
    likelihood: Likelihood
    layers: Mapping[str, Layer]
    fisher: str
    fisher_samples: int
    seed: int
    chunk: int = CHUNK_BYTES  # of patches and per-example gradients held at a time
    seen: int = 0  # examples of earlier fits, whose random numbers are not used again
    shard: Shard = field(default_factory=Shard)  # this process' part of the data
    sieve: ExampleSelector | None = None  # chooses examples in the first pass, which alone are read in the second
    between: Callable[[bool], None] | None = None  # called after every batch where the fit keeps checkpoints; last?
    checked: bool = False  # whether all data were seen to be finite in an earlier pass
    tally: PassProgress = field(default_factory=PassProgress)
    numbers: Tensor = field(default_factory=lambda: as_tensor(range(0)))  # (N,) of the examples in hand, and
    chosen: Tensor | None = None  # (N,) which of them the sieve keeps, where it chooses, and
    now: Tensor | None = None  # (N,) which are added to what is summed in one of two passes
    intakes: dict[str, GradientAccumulator] = field(default_factory=dict)  # of this pass
    called: set[str] = field(default_factory=set)  # layers whose module ran
    reached: set[str] = field(default_factory=set)  # layers that a gradient came back to
    _kept: dict[str, dict[str, Tensor]] = field(default_factory=dict)  # by intakes of the process before this one
    _sought: PassRequest = field(default_factory=lambda: PassRequest({}))  # by this pass
    _stream: UniformStream | None = None
    _drawn: int = 0  # examples whose random numbers the stream has given

    def run(self, sought: PassRequest, tick: Callable[[int], None]) -> PassProgress:
        """Read the data once, add it to the sums, and return what is known of it."""
        self._sought, share = sought, sought.share
        single = self.fisher != "exact" and self.fisher_samples == 1
        shared = shared_limit(self.chunk, self.capture.nbytes)
        self.intakes = {
            name: GradientAccumulator(
                self.layers[name],
                own,
                limit=self.chunk,
                single=single,
                shared=shared,
                of_chosen=(sought.of_chosen or {}).get(name, ()),
                once=(sought.once or {}).get(name, ()),
                again=sought.again,
            )
            for name, own in sought.sums.items()
        }
        for name, state in self._kept.items():
            self.intakes[name].restore(state)
        self._kept, self._stream, self.chosen, self.now = {}, None, None, None
        with isolated(self.seed, loader=self.loader):
            for raw in self._unread(tick):
                batches = self.tally.batches
                tick(self._take(raw, used=math.ceil((batches + 1) * share) > math.ceil(batches * share)))
                self.tally.batches += 1
                if self.between is not None:
                    self.between(False)
            if self.between is not None:
                self.between(True)
            if self.sieve is not None and not self.sieve.settled:
                self.sieve.settle()
            for name, intake in self.intakes.items():
                intake.release()
                if not intake.is_finite():
                    raise ValueError(f"the statistics of layer '{name}' overflow; scale its inputs or the loss down.")
            self.intakes = {}
            self.checked = share == 1
        tally, self.tally = self.tally, PassProgress()
        if self.shard.count is not None and tally.examples != self.shard.count:
            raise ValueError(
                f"the loader must give as many examples each time, got {self.shard.count} when they were counted, then "
                f"{tally.examples}; use a collate function that leaves none out."
            )
        return tally

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return all that another object needs to go on after this batch, except for the sums."""
        kept = {f"kept/{name}..{key}": one for name, own in self.intakes.items() for key, one in own.state().items()}
        values: dict[str, Any] = {
            "tally": asdict(self.tally),
            "called": sorted(self.called),
            "reached": sorted(self.reached),
            "checked": self.checked,
        }
        if self.sieve is not None:
            chosen, values["sieve"] = self.sieve.state()
            kept |= {f"sieve..{key}": one for key, one in chosen.items()}
        return kept, values

    def restore(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Go on where another object was; `run` then reads, and leaves out, what that had read."""
        self.tally, self.checked = PassProgress(**values["tally"]), values["checked"]
        self.called, self.reached = set(values["called"]), set(values["reached"])
        if self.sieve is not None:
            self.sieve.restore(under(tensors, "sieve.."), values["sieve"])
        kept = {name: under(tensors, f"kept/{name}..") for name in self.layers}
        self._kept = {name: state for name, state in kept.items() if state}

    def _unread(self, tick: Callable[[int], None]) -> Iterator[Any]:
        """Yield the batches that have not been read before, and take care that the others are the same as then."""
        done, digest, count = self.tally.batches, 0, 0
        batches = iter(self.loader)
        while True:
            try:
                raw = next(batches)
            except StopIteration:
                break
            except Exception:
                if self.between is not None and count >= done:
                    self.between(False)  # Ctrl-C ends a loader's workers, too
                raise
            digest = update_digest(raw, digest) if self.between is not None else 0
            if count == 0:
                self.tally.opening = update_digest(raw, 0)
            count += 1
            if count > done:
                self.tally.digest = digest
                yield raw
                continue
            tick(0)
            if count == done and digest != self.tally.digest:
                raise ValueError(
                    f"the loader must give the same data as before the fit was stopped, and its first {done} batches "
                    "are others now; use one whose order is reproducible (no time or outside randomness in it), or "
                    "delete the checkpoint to start again."
                )
        if count < done:
            raise ValueError(
                f"the loader must give the same data as before the fit was stopped, at least {done} batches, "
                f"got {count}; give it all of the data, or delete the checkpoint to start again."
            )

    def _take(self, raw: Any, *, used: bool) -> int:
        """Add one batch to the sums, or only count its examples, and return how many were added."""
        device, tally = self.capture.device, self.tally
        batch = read_batch(raw, device)
        if self.shard.total is not None:
            fresh = len(self.shard.numbers(tally.examples, batch_size(batch)))
            batch = next(split_batch(batch, max(1, fresh)))
            if fresh == 0:
                return 0
        if not used:
            tally.examples += batch_size(batch)
            return 0
        try:
            if self._sought.again:
                return self._take_chosen(batch)
            outputs, targets = self._forward(batch)
            size, tally.num_outputs = outputs.shape
            if size == 0:
                return 0
            self._backward(outputs, targets, self._uniforms(size))
        except (ValueError, TypeError) as error:
            raise type(error)(f"in batch {tally.batches}: {error}") from error
        if targets is None or not self._sought.scored:
            tally.labelled = False
        else:
            # in float64: the fitted noise is a small difference of this sum and a constant
            exact = in_double(outputs.detach())
            labels = targets.to(exact) if targets.is_floating_point() else targets.to(exact.device)
            tally.log_likelihood += float(self.likelihood.log_prob(exact, labels).sum())
        tally.examples += size
        return int(size)

    def _take_chosen(self, batch: Batch) -> int:
        """Add the examples of a batch that were chosen in the pass before, and return how many they are."""
        assert self.sieve is not None
        tally, size = self.tally, batch_size(batch)
        rows = self.sieve.kept(tally.examples, size).nonzero().squeeze(1)
        some = select_rows(batch, rows.to(self.capture.device))
        if some is not None and len(rows) == 0:
            tally.examples += size
            return 0
        outputs, targets = self._forward(batch if some is None else some)
        tally.num_outputs = outputs.shape[1]
        if some is None:  # the batch cannot be cut: all of it goes through the network, and nothing back to the others
            size = len(outputs)
            self.now = self.sieve.left(tally.examples, size)
            self._backward(outputs, targets, self._uniforms(size), among=self.sieve.kept(tally.examples, size))
        else:
            uniforms, self.now = self._uniforms(size)[rows], self.sieve.left(tally.examples, size)[rows]
            self.numbers = self.numbers[rows]
            self._backward(outputs, targets, uniforms)
        tally.examples += size
        return len(outputs)

    def _uniforms(self, size: int) -> Tensor:  # (N, V, noise_width)
        """Return the random numbers of the next examples, which do not depend on what else was read before."""
        own = self.shard.numbers(self.tally.examples, size)
        numbers = range(self.seen + own.start, self.seen + own.stop, own.step)
        self.numbers = as_tensor(numbers)
        if self._stream is None:
            width = self.likelihood.noise_width(self.tally.num_outputs)
            self._stream, self._drawn = UniformStream(self.seed, (self.fisher_samples, width)), 0
        self._stream.skip(numbers.start - self._drawn)
        drawn = self._stream.take(numbers[-1] + 1 - numbers.start)
        self._drawn = numbers[-1] + 1
        return drawn[:: numbers.step]

    def _forward(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        for x in () if self.checked else batch.tensors():
            if not _all_finite(x):
                raise ValueError("the inputs must be finite, got NaN or infinity; clean the data.")
        outputs = self.likelihood.check_outputs(self.capture.forward(batch))
        self.called.update(self.capture.calls)
        if not _all_finite(outputs):
            raise ValueError(f"the outputs must be finite, got NaN or infinity{self._first_bad_layer()}.")
        for name, calls in self.capture.calls.items():
            for call in calls:
                if call.inputs.shape[0] != outputs.shape[0]:
                    raise ValueError(
                        f"the first axis of a layer's inputs must be the batch ({outputs.shape[0]} examples), "
                        f"got shape {tuple(call.inputs.shape)} in layer '{name}'; exclude it with layers=, "
                        "or make the model batch-first."
                    )
        if outputs.shape[0] == 0:
            return outputs, None
        if batch.targets is not None:
            return outputs, self.likelihood.check_targets(batch.targets, outputs.detach())
        if self.fisher == "empirical":
            raise ValueError(
                "fisher='empirical' needs targets, got inputs alone; use fisher='mc', or give (x, y) batches."
            )
        return outputs, None

    def _backward(
        self, outputs: Tensor, targets: Tensor | None, uniforms: Tensor, *, among: Tensor | None = None
    ) -> None:
        """Send the Fisher vectors back, of all examples or of some (N,), and have the sieve choose where it does."""
        uniforms = uniforms.to(outputs) if outputs.device.type == "mps" else uniforms.to(outputs.device)
        count = self.likelihood.num_vectors(outputs.shape[1], self.fisher, self.fisher_samples)
        vectors = self.likelihood.fisher_vectors(outputs.detach(), self.fisher, targets=targets, uniforms=uniforms)
        for number, vector in enumerate(vectors):
            if self._sought.of_chosen is not None:
                self._choose(vector)
            if among is not None:
                vector = vector * among.to(vector).unsqueeze(1)

            def sink(name: str, calls: list[Call], first: bool = number == 0) -> None:
                self.reached.add(name)
                self._add(name, calls, first)

            self.capture.backward(outputs, vector, sink, last=number == count - 1)

    def _choose(self, vector: Tensor) -> None:  # (N, C)
        """Find out which examples bases are found from; all, where a layer is met that none has reached before."""
        assert self.sieve is not None
        if self.sieve.settled:
            self.chosen = self.sieve.measured(vector, self.numbers)
            return
        unmet = int(self.numbers[0]) >= WHOLE and not self.capture.calls.keys() <= self.reached
        self.chosen = self.sieve.choose(vector, self.numbers, every=unmet)
        self.now = torch.full_like(self.chosen, not bool(self.chosen.all()))  # the second pass reads such a batch whole

    def _add(self, name: str, calls: list[Call], first: bool) -> None:
        intake = self.intakes[name]
        intake.add(calls, numbers=self.numbers, first=first, chosen=self.chosen, now=self.now)
        # one example that is not finite spoils the sums, which are smaller than a shared layer's inputs
        if not (self.checked or all(map(_is_finite, calls)) if intake.keeps else intake.is_finite()):
            what = "gradients" if all(_all_finite(call.inputs) for call in calls) else "inputs"
            raise ValueError(
                f"the {what} of layer '{name}' must be finite and not overflow, got NaN or infinity; "
                "use a wider dtype, or exclude the layer with layers=."
            )

    def _first_bad_layer(self) -> str:
        for name, calls in self.capture.calls.items():
            if not all(_all_finite(call.inputs) for call in calls):
                return f": first seen in the inputs of layer '{name}'; check the weights of the layers before it"
        return " from finite inputs of every layer; check the model's last layers"


def check_independence(model: nn.Module) -> None:
    """Raise if the model mixes the examples of a batch even in evaluation mode."""
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and module.running_mean is None:
            raise ValueError(
                f"'{name}' is a {type(module).__name__} without running statistics, so the examples of a batch "
                "influence each other and have no gradient of their own; use track_running_stats=True."
            )


def _is_finite(call: Call) -> bool:
    return _all_finite(call.inputs) and call.gradients is not None and _all_finite(call.gradients)


def _all_finite(x: Tensor) -> bool:
    if not (x.is_floating_point() or x.is_complex()):
        return True
    # a finite sum is proof enough and costs one cheap pass; only an infinite one needs the closer look
    return math.isfinite(abs(x.sum().item())) or bool(x.isfinite().all())
