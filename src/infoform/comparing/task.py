"""What all methods of a comparison share: the network, data to tune on and to be scored on, and a clock."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from infoform.laplace import Laplace
from infoform.network.batches import Batch, batch_size, device_of, read_batch
from infoform.network.capture import evaluation_mode
from infoform.tuning.validation_data import ValidationData

DRAWS = 100  # of outputs in closed form
REPEATS, SECONDS = 5, 3.0  # timings of a batch: so many, or as many as this time allows


@dataclass(frozen=True)
class Task:
    """A comparison: what is asked of every method."""

    laplace: Laplace
    test: ValidationData
    unknown: Mapping[str, ValidationData]
    validation: ValidationData | None
    train: ValidationData | None
    samples: int  # of sampled networks
    seed: int
    notes: list[str] = field(default_factory=list)

    def batches(self, data: ValidationData) -> list[Batch]:
        """Return the batches of some data on the network's device."""
        return data.on(device_of(self.laplace.model))

    def outputs(self, data: ValidationData) -> Tensor:  # -> (N, C)
        """Return the outputs of the trained network."""
        with self.laplace._predictor().private() as predictor:
            return torch.cat([predictor.outputs(batch) for batch in self.batches(data)])

    def targets(self, data: ValidationData, outputs: Tensor) -> Tensor:  # (N, C)
        """Return the checked targets of some data, all of which must have them."""
        found, start = [], 0
        for batch in self.batches(data):
            assert batch.targets is not None
            part = outputs[start : start + batch_size(batch)]
            found.append(self.laplace.likelihood.check_targets(batch.targets, part))
            start += len(part)
        return torch.cat(found)

    @cached_property
    def test_targets(self) -> Tensor:
        """Return the targets that all methods are scored by."""
        return self.targets(self.test, self.outputs(self.test)).cpu()

    @cached_property
    def plain_seconds(self) -> float:
        """Return the time of a plain forward pass of the first test batch."""
        return self._plain_time()

    def timed(self, work: Callable[[], object]) -> float:
        """Return the median time of some work, after a first time that prepares what is done once."""
        work()
        found: list[float] = []
        while len(found) < REPEATS and sum(found) < SECONDS:
            begun = time.perf_counter()
            work()
            found.append(time.perf_counter() - begun)
        return statistics.median(found)

    def forwards(self, predict: Callable[[Any], object]) -> float:
        """Return what predicting the first test batch costs, in plain forward passes that are timed just before."""
        raw = inputs_of(self.batches(self.test)[0])
        plain = self._plain_time()
        return self.timed(lambda: predict(raw)) / plain

    def _plain_time(self) -> float:
        batch, model = self.batches(self.test)[0], self.laplace.model
        with torch.no_grad(), evaluation_mode(model):
            return self.timed(lambda: model(*batch.args, **batch.kwargs))

    def samples_of(self, kind: str) -> int:
        """Return how many draws a kind of prediction makes."""
        return self.samples if kind == "mc" else DRAWS

    @property
    def first_batch(self) -> int:
        """Return the number of examples of the first test batch."""
        return batch_size(read_batch(self.test.batches[0], device_of(self.laplace.model)))


def inputs_of(batch: Batch) -> Any:
    """Return the inputs of a batch in the form that `Laplace.predict` takes."""
    if batch.kwargs:
        return dict(batch.kwargs)
    return batch.args[0] if len(batch.args) == 1 else batch.args
