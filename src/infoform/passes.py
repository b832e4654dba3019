"""One pass over the data: batches through the model, gradients of every layer into its sums."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from infoform.batches import Batch, batch_size, chosen_rows, in_double, read_batch, split_batch
from infoform.capture import Call, Capture, GradientSink
from infoform.checkpoint import folded, under
from infoform.coverage import Layer
from infoform.distributed import Shard
from infoform.examples import CHUNK_BYTES, Intake, shared_limit
from infoform.likelihoods import DataSummary, Likelihood
from infoform.randomness import UniformStream, isolated
from infoform.sieve import WHOLE, Sieve
from infoform.statistics import Sums

FEW = 0.5  # share of examples kept below which a batch is looked at first, and only those go back through the network


@dataclass
class Tally:
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
    between: Callable[[bool], None] | None = None  # called after every batch where the fit keeps checkpoints; last?
    checked: bool = False  # whether all data were seen to be finite in an earlier pass
    tally: Tally = field(default_factory=Tally)
    numbers: range = range(0)  # of the batch's examples, earlier fits included
    intakes: dict[str, Intake] = field(default_factory=dict)  # of this pass
    called: set[str] = field(default_factory=set)  # layers whose module ran
    reached: set[str] = field(default_factory=set)  # layers that a gradient came back to
    _kept: dict[str, dict[str, Tensor]] = field(default_factory=dict)  # by intakes of the process before this one
    _sieve: Sieve | None = None  # chooses the examples of this pass
    _sifted: dict[str, float] = field(default_factory=dict)  # by the process before this one
    _scored: bool = True  # whether the likelihood of the labels is summed in this pass
    _stream: UniformStream | None = None
    _drawn: int = 0  # examples whose random numbers the stream has given

    def run(
        self,
        sums: Mapping[str, Sequence[Sums]],
        tick: Callable[[int], None],
        *,
        share: float = 1.0,
        sieve: Sieve | None = None,
        scored: bool = True,
    ) -> Tally:
        """Read the data once, add it, or evenly spread batches of it, to the sums, and return what is known of it.

        A sieve leaves out examples with little information; the sums must be such as do not ask for an example's
        number. The likelihood of the labels is known only where it is scored: one of two passes has no need to.
        """
        self._scored = scored
        self._sieve = sieve
        if sieve is not None:
            sieve.restore(self._sifted)
        single = self.fisher != "exact" and self.fisher_samples == 1
        shared = shared_limit(self.chunk, self.capture.nbytes)
        self.intakes = {
            name: Intake(self.layers[name], own, limit=self.chunk, single=single, shared=shared)
            for name, own in sums.items()
        }
        for name, state in self._kept.items():
            self.intakes[name].restore(state)
        self._kept, self._sifted, self._stream = {}, {}, None
        with isolated(self.seed, loader=self.loader):
            for raw in self._unread(tick):
                batches = self.tally.batches
                tick(self._take(raw, used=math.ceil((batches + 1) * share) > math.ceil(batches * share)))
                self.tally.batches += 1
                if self.between is not None:
                    self.between(False)
            if self.between is not None:
                self.between(True)
            if self._sieve is not None:
                self._sieve.mean()  # other processes may still ask for what this one knows of it
            for name, intake in self.intakes.items():
                intake.release()
                if not intake.is_finite():
                    raise ValueError(f"the statistics of layer '{name}' overflow; scale its inputs or the loss down.")
            self.intakes = {}
            self.checked = share == 1 and sieve is None
        tally, self.tally = self.tally, Tally()
        if self.shard.count is not None and tally.examples != self.shard.count:
            raise ValueError(
                f"the loader must give as many examples each time, got {self.shard.count} when they were counted, then "
                f"{tally.examples}; use a collate function that leaves none out."
            )
        return tally

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return all that another object needs to go on after this batch, except for the sums."""
        kept = {f"kept/{name}..{key}": one for name, own in self.intakes.items() for key, one in own.state().items()}
        values = {"tally": asdict(self.tally), "called": sorted(self.called), "reached": sorted(self.reached)}
        sieve = {} if self._sieve is None else self._sieve.state()
        return kept, {**values, "checked": self.checked, "sieve": sieve}

    def restore(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Go on where another object was; `run` then reads, and leaves out, what that had read."""
        self.tally, self.checked = Tally(**values["tally"]), values["checked"]
        self.called, self.reached, self._sifted = set(values["called"]), set(values["reached"]), values["sieve"]
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
            digest = folded(raw, digest) if self.between is not None else 0
            if count == 0:
                self.tally.opening = folded(raw, 0)
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
        looks = self._sieve is not None and self._sieve.share < FEW and chosen_rows(batch, []) is not None
        try:
            outputs, targets = self._forward(batch, differentiable=not looks)
            size, tally.num_outputs = outputs.shape
            if size == 0:
                return 0
            own = self.shard.numbers(tally.examples, size)
            self.numbers = range(self.seen + own.start, self.seen + own.stop, own.step)
            uniforms = self._uniforms()
            uniforms = uniforms.to(outputs) if device.type == "mps" else uniforms.to(device)
            if self._sieve is None:
                self._backward(outputs, targets, uniforms)
            else:
                self._sift(self._sieve, outputs, targets, uniforms, looked_at=batch if looks else None)
        except (ValueError, TypeError) as error:
            raise type(error)(f"in batch {tally.batches}: {error}") from error
        if targets is None or not self._scored:
            tally.labelled = False
        else:
            # in float64: the fitted noise is a small difference of this sum and a constant
            exact = in_double(outputs.detach())
            labels = targets.to(exact) if targets.is_floating_point() else targets.to(exact.device)
            tally.log_likelihood += float(self.likelihood.log_prob(exact, labels).sum())
        tally.examples += size
        return int(size)

    def _uniforms(self) -> Tensor:  # (N, V, noise_width)
        """Return the random numbers of the batch's examples, which do not depend on what else was read before."""
        if self._stream is None:
            width = self.likelihood.noise_width(self.tally.num_outputs)
            self._stream, self._drawn = UniformStream(self.seed, (self.fisher_samples, width)), 0
        self._stream.skip(self.numbers.start - self._drawn)
        drawn = self._stream.take(self.numbers[-1] + 1 - self.numbers.start)
        self._drawn = self.numbers[-1] + 1
        return drawn[:: self.numbers.step]

    def _forward(self, batch: Batch, *, differentiable: bool = True) -> tuple[Tensor, Tensor | None]:
        for x in () if self.checked else batch.tensors():
            if not _all_finite(x):
                raise ValueError("the inputs must be finite, got NaN or infinity; clean the data.")
        outputs = self.likelihood.check_outputs(self.capture.forward(batch, differentiable=differentiable))
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

    def _backward(self, outputs: Tensor, targets: Tensor | None, uniforms: Tensor) -> None:
        count = self.likelihood.num_vectors(outputs.shape[1], self.fisher, self.fisher_samples)
        vectors = self.likelihood.fisher_vectors(outputs.detach(), self.fisher, targets=targets, uniforms=uniforms)
        for number, vector in enumerate(vectors):
            self.capture.backward(outputs, vector, self._sink(first=number == 0), last=number == count - 1)

    def _sift(
        self, sieve: Sieve, outputs: Tensor, targets: Tensor | None, uniforms: Tensor, *, looked_at: Batch | None
    ) -> None:
        """Send back what the sieve keeps: through these outputs or, where the batch was looked at, through new ones."""
        (vector,) = self.likelihood.fisher_vectors(outputs.detach(), self.fisher, targets=targets, uniforms=uniforms)
        kept = sieve.keep(vector, self.numbers)
        if self.numbers.start >= WHOLE and not self.capture.calls.keys() <= self.reached:
            kept = kept.new_ones(len(kept))  # layers that no example has reached before, and need a basis, too
        if looked_at is None:
            vector = vector * kept.unsqueeze(1)
        else:
            rows = kept.nonzero().squeeze(1)
            chosen = chosen_rows(looked_at, rows)
            if chosen is None or len(rows) == 0:
                return
            (outputs, _), vector = self._forward(chosen), vector[rows]
        self.numbers = range(sieve.given, sieve.given + len(vector))  # among those given to the sums
        sieve.given += len(vector)
        self.capture.backward(outputs, vector, self._sink(first=True))

    def _sink(self, *, first: bool) -> GradientSink:
        def sink(name: str, calls: list[Call]) -> None:
            self.reached.add(name)
            self._add(name, calls, first)

        return sink

    def _add(self, name: str, calls: list[Call], first: bool) -> None:
        intake = self.intakes[name]
        intake.add(calls, numbers=self.numbers, first=first)
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


@contextmanager
def progress_bar(shown: bool) -> Iterator[Callable[[str, int | None], Callable[[int], None]]]:
    """Give a function that starts a bar and returns its tick; a tick takes the number of examples (or layers) done."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not shown,
    )

    def start(description: str, total: int | None) -> Callable[[int], None]:
        task = bar.add_task(description, total=total, rate="")
        done = 0

        def tick(count: int) -> None:
            nonlocal done
            done += count
            elapsed = bar.tasks[task].elapsed
            bar.update(task, advance=1, rate=f"{done / elapsed:.0f}/s" if elapsed else "")

        return tick

    with bar:
        yield start


def _is_finite(call: Call) -> bool:
    return _all_finite(call.inputs) and call.gradients is not None and _all_finite(call.gradients)


def _all_finite(x: Tensor) -> bool:
    if not (x.is_floating_point() or x.is_complex()):
        return True
    # a finite sum is proof enough and costs one cheap pass; only an infinite one needs the closer look
    return math.isfinite(abs(x.sum().item())) or bool(x.isfinite().all())
