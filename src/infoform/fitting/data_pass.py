"""One pass over the data: batches through the network, gradients of every layer into its sums."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from infoform.common.files import under
from infoform.common.float64 import in_double
from infoform.common.randomness import isolated
from infoform.curvature.subsampling import as_tensor
from infoform.fitting.accumulate import GradientAccumulator
from infoform.fitting.fisher_gradients import FisherGradients, SampledUniforms, all_finite, is_finite
from infoform.fitting.layer_check import LayerCheck
from infoform.fitting.pass_plan import PassPlan
from infoform.fitting.reader import BatchReader, PassProgress, ReadBatch
from infoform.fitting.reading import BatchExamples, BatchPart, Reading
from infoform.likelihoods.own_data import add_counts, labels_are_tokens, look_like_pixels
from infoform.likelihoods.positions import RowTargets, as_rows, positions_of
from infoform.network.batches import batch_size, is_divisible
from infoform.network.capture import Call
from infoform.novelty.fit_sums import NoveltySums


class DataPass:
    """A pass that is under way."""

    def __init__(
        self,
        plan: PassPlan,
        accumulators: Mapping[str, GradientAccumulator],
        *,
        network: FisherGradients,
        reader: BatchReader,
        reading: Reading,
        check: LayerCheck,
        novelty: NoveltySums | None = None,
    ) -> None:
        self._plan, self._accumulators = plan, accumulators
        self._network, self._reader, self._reading = network, reader, reading
        self._check, self._novelty = check, novelty
        network.capture.network.expanding = accumulators.keys()  # others would cost a run of the network
        self._uniforms = SampledUniforms(reader.seed)
        self.progress = PassProgress()

    def run(
        self,
        *,
        check: Callable[[PassProgress], None],
        tick: Callable[[int], None],
        pause: Callable[[bool], None],
    ) -> PassProgress:
        """Read the data once, add it to the sums, and return what is known of it.

        Args:
            check: Is called now and then, and raises where the data are others than in the pass before.
            tick: Is called after each batch with the examples of it that were added.
            pause: Is called after each batch with False, and at the end of the data, before waiting gradients are
                added, with True; the fit may be saved, or stopped, there.
        """
        progress = self.progress
        with isolated(self._reader.seed, loader=self._reader.loader):
            batches = self._reader.read(
                progress, share=self._plan.share, check=check, skipped=lambda: tick(0), failed=lambda: pause(False)
            )
            for read in batches:
                tick(self._add(read))
                progress.batches += 1
                pause(False)
        pause(True)
        for name, accumulator in self._accumulators.items():
            accumulator.release()
            if not accumulator.is_finite():
                raise ValueError(f"the statistics of layer '{name}' overflow; scale its inputs or the loss down.")
        self._reader.check_count(progress.examples)
        return progress

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return all that another object needs to go on after this batch, except for the sums."""
        tensors, selection = self._reading.state()
        states = {name: one.state() for name, one in self._accumulators.items()}
        waiting = {f"waiting/{name}..{key}": one for name, own in states.items() for key, one in own.items()}
        selecting = {f"selecting..{key}": one for key, one in tensors.items()}
        return waiting | selecting, {"progress": self.progress.state(), "selecting": selection}

    def restore(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Go on where another object was; `run` then reads, and leaves out, the batches that it had read."""
        self.progress = PassProgress.restored(values["progress"])
        self._reading.restore(under(tensors, "selecting.."), values["selecting"])
        for name, accumulator in self._accumulators.items():
            accumulator.restore(under(tensors, f"waiting/{name}.."))

    def _add(self, read: ReadBatch) -> int:
        """Add one batch to the sums, or only count its examples, and return how many were added."""
        sized = read.batch.targets is not None or (self._check.divisible and is_divisible(read.batch))
        if not read.used and sized:  # where only the outputs tell the number of examples, the batch is used
            self.progress.examples += read.size
            return 0
        try:
            return self._add_part(
                self._reading.cut(read.batch, self.progress.examples, divisible=self._check.divisible)
            )
        except (ValueError, TypeError) as error:
            raise type(error)(f"in batch {self.progress.batches}: {error}") from error

    def _add_part(self, part: BatchPart) -> int:
        progress = self.progress
        if part.is_empty:
            progress.examples += part.whole or 0
            return 0
        outputs, targets = self._forward(part)
        progress.called |= self._network.capture.calls.keys()
        progress.num_outputs = outputs.shape[-1]
        progress.positions = max(progress.positions, math.prod(positions_of(outputs)))
        if len(outputs) == 0:
            return 0
        size = len(outputs) if part.whole is None else part.whole
        numbers = self._reader.numbers(progress.examples, size)
        if self._novelty is not None:
            self._novelty.add(outputs, targets.targets, as_tensor(numbers))
        self._backward(outputs, targets, numbers, part)
        self._score(outputs, targets)
        if progress.batches == 0 and self._plan.scored:
            self._look_at(part)
        progress.examples += size
        return len(outputs)

    def _forward(self, part: BatchPart) -> tuple[Tensor, RowTargets]:  # (N, *P, C)
        """Return outputs and targets of a part, and look at layers that were never called before."""
        capture = self._network.capture
        if self._check.is_first and batch_size(part.batch):
            self._check.look(capture.network, list(self._accumulators), part.batch, self.progress)
        if self._novelty is not None:
            self._novelty.excluded |= capture.network.axes.keys() | self.progress.odd.keys()
            self._novelty.begin(part.batch)
        outputs, targets = self._network.forward(part, checked=self._plan.checked)
        if part.rows is None and len(outputs) != batch_size(part.batch):
            self._check.divisible = False  # what would be cut are not the examples
        if len(outputs) == 0 or not self._check.has_new(capture.calls):
            self._check.note(capture.network, self.progress)
            return outputs, targets
        called = set(capture.calls)
        del outputs, targets
        capture.forget()  # the check needs the memory
        self._check.look(capture.network, called, part.batch, self.progress)
        self._check.checked |= called  # also those that the few examples of a check do not call, or with NaN outputs
        return self._forward(part)

    def _backward(self, outputs: Tensor, targets: RowTargets, numbers: range, part: BatchPart) -> None:
        """Send the Fisher vectors of a part back; the whole batch has these numbers."""
        network = self._network
        width = network.likelihood.noise_width(outputs.shape[-1])
        positions = math.prod(positions_of(outputs)) if outputs.dim() > 2 else None
        rows = slice(None) if part.rows is None else part.rows
        uniforms = self._uniforms.of(numbers, (network.samples, width), positions=positions)[rows]
        own, first = as_tensor(numbers)[rows], True
        for vector, last in network.vectors(outputs, targets, uniforms):
            new_layer = not network.capture.calls.keys() <= self.progress.reached
            examples = self._reading.examples(vector, own, part, new_layer=new_layer)
            network.capture.backward(outputs, examples.masked(vector), self._sink(examples, first), last=last)
            self._check.note(network.capture.network, self.progress)
            first = False

    def _sink(self, examples: BatchExamples, first: bool) -> Callable[[str, list[Call]], None]:
        """Return what takes the gradients of a layer as they arrive."""

        def add(name: str, calls: list[Call]) -> None:
            self.progress.reached.add(name)
            if name in self._accumulators and name not in self.progress.odd:
                self._accumulators[name].add(calls, examples, first=first)
                self._check_finite(name, calls)

        return add

    def _check_finite(self, name: str, calls: list[Call]) -> None:
        if not self._is_finite(self._accumulators[name], calls):
            what = "gradients" if all(all_finite(call.inputs) for call in calls) else "inputs"
            raise ValueError(
                f"the {what} of layer '{name}' must be finite and not overflow, got NaN or infinity; "
                "use a wider dtype, or exclude the layer with layers=."
            )

    def _is_finite(self, accumulator: GradientAccumulator, calls: list[Call]) -> bool:
        if accumulator.waits:  # gradients that wait are not in the sums yet
            return self._plan.checked or all(map(is_finite, calls))
        # one example that is not finite spoils the sums, which are smaller than a shared layer's inputs
        return accumulator.is_finite()

    def _look_at(self, part: BatchPart) -> None:
        """Count inputs that look like raw pixels, in the first batch."""
        first = next(iter(part.batch.tensors()), None)
        if first is not None and look_like_pixels(first):
            self.progress.counts = add_counts([self.progress.counts, {"pixels": 1}])
        if labels_are_tokens(part.batch.kwargs.get("input_ids"), part.batch.targets):
            self.progress.counts = add_counts([self.progress.counts, {"tokens": 1}])

    def _score(self, outputs: Tensor, found: RowTargets) -> None:
        """Add the likelihood of the labels, where the pass sums it."""
        targets = found.targets
        if targets is None or not self._plan.scored:
            self.progress.labelled = False
            return
        # in float64: the fitted noise is a small difference of this sum and a constant
        exact = in_double(found.of(as_rows(outputs.detach())))
        self.progress.num_targets += len(exact)
        labels = targets.to(exact) if targets.is_floating_point() else targets.to(exact.device)
        self.progress.log_likelihood += float(self._network.likelihood.log_prob(exact, labels).sum())
        counted = self._network.likelihood.count(exact, labels) if len(exact) else {}
        self.progress.counts = add_counts([self.progress.counts, counted])
