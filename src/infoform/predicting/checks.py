"""The self-check of predictions: once for each kind of batch, however often `predict` is called.

Only "linear" predictions by gradients need it: sampled networks, also linear ones, run the model as it is.
"""

import warnings
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from threading import RLock
from typing import TYPE_CHECKING, Any

from torch import Tensor

from infoform.network.batches import Batch, batch_size, is_divisible
from infoform.network.capture import Capture, capturing
from infoform.network.layer import Layer
from infoform.network.many_outputs import can_go_at_once
from infoform.network.self_check import Verdict, check_network

if TYPE_CHECKING:
    from infoform.predicting.predictor import Predictor

DEPENDENT = (
    "a linear prediction needs outputs of an example that do not depend on the other examples of its batch, and the "
    "same examples have other outputs in a smaller batch; predict one example at a time, or with kind='mc'."
)


TOGETHER = 128  # examples that run together in a check
AT_ONCE = 80  # examples times outputs up to which one backward pass is faster than one for each output, where
AT_ONCE_BYTES = 2**25  # it brings back at most so many bytes to all layers
_LOOKING = RLock()  # one look at a time, of all objects: an object with a lock of its own could not be pickled


@dataclass(frozen=True)
class BatchCheck:
    """How a batch is to be predicted."""

    axes: Mapping[str, str] = field(default_factory=dict)  # where the examples are, if not first, by layer
    alone: bool = False  # whether each example has to be predicted alone
    divisible: bool = True  # whether examples can be taken out of the batch
    fixed: Mapping[str, str] = field(default_factory=dict)  # layers that count as fixed, and why
    at_once: bool = False  # whether all outputs are sent back together


@dataclass
class PredictionChecks:
    """Which kinds of batches have been looked at, of one fitted model."""

    enabled: bool = True
    known: dict[Hashable, BatchCheck] = field(default_factory=dict)

    def of(self, predictor: "Predictor", layers: Mapping[str, Layer], batch: Batch) -> BatchCheck:
        """Return how a batch is predicted, after a look at batches of a kind that was not seen before.

        Args:
            predictor: The model; the check runs it.
            layers: The layers that have a posterior.
            batch: At least one example.

        Raises:
            ValueError: If an example's outputs depend on the rest of the batch.
        """
        key = (tuple(layers), signature(batch))
        with _LOOKING:
            if key not in self.known:
                self.known[key] = _look(predictor, layers, batch, compares=self.enabled)
            return self.known[key]


def signature(batch: Batch) -> Hashable:
    """Return what batches of one kind have in common: their arguments but for sizes, and the order of their number."""
    named = sorted(batch.kwargs.items())
    kinds = [*(_kind(value) for value in batch.args), *((name, _kind(value)) for name, value in named)]
    return min(batch_size(batch), TOGETHER).bit_length(), tuple(kinds)


def _kind(value: Any) -> str:
    return f"{value.dim()} {value.dtype}" if isinstance(value, Tensor) else type(value).__name__


def _look(predictor: "Predictor", layers: Mapping[str, Layer], batch: Batch, *, compares: bool) -> BatchCheck:
    check_outputs = predictor.likelihood.arrange_outputs
    with capturing(predictor.model, layers) as capture:
        if not compares:
            check_outputs(capture.forward(batch))
            unplaced = {name: next(iter(troubles.values())) for name, troubles in capture.unplaced.items()}
            verdict = Verdict(odd=unplaced | capture.odd, divisible=is_divisible(batch))
        else:
            verdict = check_network(capture, layers, batch, check_outputs, together=TOGETHER)
        if verdict.dependent:
            raise ValueError(DEPENDENT)
        if not verdict.odd:
            at_once = _goes_at_once(capture, batch, check_outputs)
            return BatchCheck(verdict.axes, divisible=verdict.divisible, at_once=at_once)
        alone = check_network(capture, layers, batch, check_outputs, together=1)
    name, reason = next(iter(verdict.odd.items()))
    if verdict.divisible and not alone.odd and not alone.dependent and batch_size(batch) > 1:
        warnings.warn(
            f"layer '{name}' does not keep the examples of a batch apart ({reason}): linear predictions are made of "
            "one example at a time; kind='linear-mc' predicts whole batches.",
            stacklevel=2,
        )
        return BatchCheck(alone.axes, alone=True)
    warnings.warn(
        f"layer '{name}' is held fixed in linear predictions: {reason}; kind='mc' takes its uncertainty into account.",
        stacklevel=2,
    )
    return BatchCheck(verdict.axes, fixed=verdict.odd, divisible=verdict.divisible)


def _goes_at_once(capture: Capture, batch: Batch, arrange_outputs: Callable[[Tensor], Tensor]) -> bool:
    """Whether all outputs of batches of this kind are few enough to be sent back together, and can be."""
    outputs = arrange_outputs(capture.forward(batch))
    most = 2 ** batch_size(batch).bit_length() - 1  # examples of a batch of the same kind
    rows, each = most * outputs.shape[-1], sum(capture.output_bytes) // batch_size(batch)
    return rows <= AT_ONCE and rows * each <= AT_ONCE_BYTES and can_go_at_once(capture, outputs)
