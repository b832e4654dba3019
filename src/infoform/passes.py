"""One pass over the data: batches through the model, gradients of every layer into its sums."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from infoform.batches import Batch, batch_size, device_of, read_batch
from infoform.capture import Call, Capture
from infoform.coverage import Layer
from infoform.examples import CHUNK_BYTES, Intake
from infoform.likelihoods import DataSummary, Likelihood
from infoform.randomness import UniformStream, isolated
from infoform.statistics import Sums


@dataclass
class DataPass:
    """Everything that stays the same from pass to pass."""

    capture: Capture
    loader: Iterable[Any]
    likelihood: Likelihood
    layers: Mapping[str, Layer]
    fisher: str
    fisher_samples: int
    seed: int
    chunk: int = CHUNK_BYTES  # of patches and per-example gradients held at a time
    seen: int = 0  # examples of earlier fits, whose random numbers are not used again
    index: int = 0  # number of the batch's first example, earlier fits included
    checked: bool = False  # whether all data were seen to be finite in an earlier pass
    intakes: dict[str, Intake] = field(default_factory=dict)  # of this pass
    called: set[str] = field(default_factory=set)  # layers whose module ran
    reached: set[str] = field(default_factory=set)  # layers that a gradient came back to

    def run(
        self, sums: Mapping[str, Sequence[Sums]], tick: Callable[[int], None], *, share: float = 1.0
    ) -> DataSummary:
        """Read the data once, add it, or evenly spread batches of it, to the sums, and return what is known of it."""
        device = device_of(self.capture.model)
        single = self.fisher != "exact" and self.fisher_samples == 1
        self.intakes = {
            name: Intake(self.layers[name], own, limit=self.chunk, single=single) for name, own in sums.items()
        }
        examples, num_outputs, log_likelihood = 0, 0, 0.0
        stream, labelled = None, True
        with isolated(self.seed, loader=self.loader):
            for index, raw in enumerate(self.loader):
                batch = read_batch(raw, device)
                if math.ceil((index + 1) * share) == math.ceil(index * share):
                    examples += batch_size(batch)
                    if stream is not None:
                        stream.take(batch_size(batch))  # both passes see the same sampled labels
                    tick(0)
                    continue
                try:
                    outputs, targets = self._forward(batch)
                    size, num_outputs = outputs.shape
                    if size == 0:
                        continue
                    if stream is None:
                        width = self.likelihood.noise_width(num_outputs)
                        stream = UniformStream(self.seed, (self.fisher_samples, width))
                        stream.take(self.seen)
                    self.index = self.seen + examples
                    self._backward(outputs, targets, stream.take(size).to(device))
                except (ValueError, TypeError) as error:
                    raise type(error)(f"in batch {index}: {error}") from error
                if targets is None:
                    labelled = False
                else:
                    # in float64: the fitted noise is a small difference of this sum and a constant
                    exact = targets.double() if targets.is_floating_point() else targets
                    log_likelihood += float(self.likelihood.log_prob(outputs.detach().double(), exact).sum())
                examples += size
                tick(size)
            for name, intake in self.intakes.items():
                intake.release()
                if not intake.is_finite():
                    raise ValueError(f"the statistics of layer '{name}' overflow; scale its inputs or the loss down.")
            self.intakes = {}
            self.checked = share == 1
        if examples == 0:
            raise ValueError(
                "the loader gave no examples; a fit needs at least one batch (was the loader read before?)."
            )
        return DataSummary(examples, num_outputs, log_likelihood if labelled else None)

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

    def _backward(self, outputs: Tensor, targets: Tensor | None, uniforms: Tensor) -> None:
        count = self.likelihood.num_vectors(outputs.shape[1], self.fisher, self.fisher_samples)
        vectors = self.likelihood.fisher_vectors(outputs.detach(), self.fisher, targets=targets, uniforms=uniforms)
        for number, vector in enumerate(vectors):

            def sink(name: str, calls: list[Call], first: bool = number == 0) -> None:
                self.reached.add(name)
                self._add(name, calls, first)

            self.capture.backward(outputs, vector, sink, last=number == count - 1)

    def _add(self, name: str, calls: list[Call], first: bool) -> None:
        intake = self.intakes[name]
        intake.add(calls, index=self.index, first=first)
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
    return bool(x.sum().isfinite()) or bool(x.isfinite().all())
