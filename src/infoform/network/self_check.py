"""A self-check: the gradients that a capture has of a few examples against autograd's of the same examples.

A capture takes it that the first axis is the example and that a module's call is the only use of its weight. Here a
batch runs through the tapped network as it is (a few of its examples would not show what a network does to many, as
experts do that take no more than so many), and a few of its examples once more in pairs (torch's batch norm errs for
one example alone, and one example would not show a permutation) with the weights' gradients by autograd. For each layer
the arrangement of its examples is found that agrees (batch_axis.py), or the layer has none. Where numbers differ by
more than their rounding the check is made again in float64, so that rounding alone never speaks against a network.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from infoform.common.randomness import isolated
from infoform.network.attention_setting import unfused_encoder
from infoform.network.batch_axis import AXES, FIRST, SHARED, arranged
from infoform.network.batches import Batch, batch_size, is_divisible, read_outputs, select_rows_beside, squares
from infoform.network.capture import Call, Capture
from infoform.network.layer import Layer
from infoform.network.one_example_norm import repaired_batch_norm

CHECKED = 4  # examples that are compared, in pairs
ROUNDING = {torch.float64: 1e-4, torch.float32: 1e-3}  # relative differences that are looked at no further; others 2 %
IN_DOUBLE = 1e-3  # relative differences that count in float64 (some models compute their norms in float32 even then)
WITHOUT_DOUBLE = {torch.float32: 0.05}  # that count where the model does not run in float64; others 20 %
DIFFERENT_GRADIENTS = (
    "its gradients are not those of autograd: the weight is also used outside of its module's call, say, or the "
    "examples of a batch change places"
)


@dataclass(frozen=True)
class Verdict:
    """What a self-check has found."""

    layers: frozenset[str] = frozenset()  # that were called, and so looked at
    axes: Mapping[str, str] = field(default_factory=dict)  # where the examples are, if not first, by layer
    odd: Mapping[str, str] = field(default_factory=dict)  # why a layer's captured gradients are wrong, by layer
    dependent: bool = False  # whether outputs depend on the rest of the batch
    divisible: bool = True  # whether examples can be taken out of the batch
    random: bool = False  # whether the model draws random numbers, so that nothing was compared with fewer examples
    trouble: str = ""  # why the check could not be made, if it could not


def check_network(
    capture: Capture,
    layers: Mapping[str, Layer],
    batch: Batch,
    check_outputs: Callable[[Tensor], Tensor],
    *,
    together: int | None = None,
) -> Verdict:
    """Compare the captured gradients of a few examples with autograd's.

    Args:
        capture: the network with these layers tapped; it is left as found.
        layers: the layers by name.
        batch: at least one example.
        check_outputs: makes a matrix (N, C) of the model's outputs.
        together: at most so many examples run together, where they can be taken apart; None for all.
    """
    batch = Batch(batch.args, batch.kwargs, None)
    verdict = _verdict(capture, layers, batch, check_outputs, together, shared=())
    if not (verdict.dependent or verdict.trouble) or not is_divisible(batch):
        return verdict
    for square in squares(batch):  # a mask of as many positions was cut as if it had a row for each example
        again = _verdict(capture, layers, batch, check_outputs, together, shared=[square])
        if not again.dependent and not again.trouble:
            return replace(again, divisible=False)
    return verdict


def _verdict(
    capture: Capture,
    layers: Mapping[str, Layer],
    batch: Batch,
    check_outputs: Callable[[Tensor], Tensor],
    together: int | None,
    *,
    shared: Sequence[Tensor],
) -> Verdict:
    """Return what is found on a few examples; arguments in `shared` are of all of them alike."""
    count, cuts = batch_size(batch), is_divisible(batch)
    if cuts and together is not None and together < count:
        batch, count = select_rows_beside(batch, _some(count, together), shared), together
    dtype = _dtype(capture)
    with _set_aside(capture), isolated(0), torch.enable_grad():
        check = _Check(capture, layers, batch, check_outputs, cuts=cuts, count=count, shared=shared)
        try:
            verdict = check.run(ROUNDING.get(dtype, 0.02))
            if dtype == torch.float64 or not (verdict.odd or verdict.dependent):
                return verdict
            own = capture.state
            try:
                return check.in_double().run(IN_DOUBLE)
            except (RuntimeError, TypeError):  # the model makes tensors of another dtype, or the device has none
                capture.state = own
                return check.run(WITHOUT_DOUBLE.get(dtype, 0.2))
        except (RuntimeError, NotImplementedError) as error:
            return Verdict(frozenset(layers), trouble=str(error).splitlines()[0])


class _WrongOutputsError(Exception):
    """Outputs that the likelihood refuses: whoever runs the network next will say so, of the whole batch."""


class _Check:
    """A batch, and the network to run it through."""

    def __init__(
        self,
        capture: Capture,
        layers: Mapping[str, Layer],
        batch: Batch,
        check_outputs: Callable[[Tensor], Tensor],
        *,
        cuts: bool,
        count: int,
        shared: Sequence[Tensor] = (),
    ) -> None:
        self._count, self._shared = count, shared
        self._capture, self._layers, self._batch, self._check_outputs = capture, layers, batch, check_outputs
        self._cuts = cuts  # whether examples can be taken out of the batch

    def in_double(self) -> "_Check":
        """Return the same check with the network and its inputs in float64."""
        self._capture.state = {name: _double(one) for name, one in self._capture.state.items()}
        widened = {id(one): _double(one) for one in self._batch.tensors()}

        def double(value: Any) -> Any:
            return widened.get(id(value), value)

        args = tuple(map(double, self._batch.args))
        batch = Batch(args, {name: double(one) for name, one in self._batch.kwargs.items()}, None)
        return self._with(batch, [double(one) for one in self._shared], cuts=self._cuts)

    def whole(self) -> "_Check":
        """Return the same check without pairs."""
        return self._with(self._batch, self._shared, cuts=False)

    def _with(self, batch: Batch, shared: Sequence[Tensor], *, cuts: bool) -> "_Check":
        how: dict[str, Any] = {"cuts": cuts, "count": self._count, "shared": shared}
        return _Check(self._capture, self._layers, batch, self._check_outputs, **how)

    def run(self, tolerance: float) -> Verdict:
        try:
            outputs = self._together(seed=0)
        except _WrongOutputsError:
            return Verdict()
        called = frozenset(self._capture.calls)
        if not bool(outputs.isfinite().all()):
            return Verdict()  # whoever runs the network next will say so
        if self._cuts and len(outputs) != self._count:  # what was cut were not the examples
            return self.whole().run(tolerance)
        generator = torch.Generator().manual_seed(len(outputs))
        vectors = torch.randn(outputs.shape, generator=generator, dtype=torch.float64).to(outputs)
        compared, agreement = self._compared(len(outputs)), dict[str, _Agreement]()

        def note(name: str, calls: list[Call]) -> None:
            if name in self._layers:
                agreement[name] = _Agreement(self._layers[name], calls, len(outputs), compared)

        self._capture.backward(outputs, vectors, note)
        odd = dict(self._capture.odd)
        outputs = outputs.detach()
        for part, places, own, size in self._pairs(compared, len(outputs)):
            single, leaves = self._forward(part, list(agreement))
            if self._cuts and len(single) != size:
                return self.whole().run(tolerance)
            if not bool(single.isfinite().all()):
                return Verdict()
            if not _close(single[own].detach(), outputs[places], tolerance):
                if self._is_random(outputs):  # then the same examples are compared with the same random numbers
                    return replace(self.whole().run(tolerance), random=True)
                return Verdict(called, dependent=True)
            if not leaves:
                continue
            for index, place in zip(own, places, strict=True):
                by_leaf = torch.autograd.grad(
                    (single[index] * vectors[place]).sum(), list(leaves.values()), retain_graph=True, allow_unused=True
                )
                gradients = dict(zip(leaves, by_leaf, strict=True))
                for one in agreement.values():
                    one.compare(place, gradients, tolerance)
        axes = {name: one.axis for name, one in agreement.items()}
        shared = [name for name, one in agreement.items() if axes[name] is None and one.may_be_shared]
        if shared and not self._capture.axes:
            return self._with_shared(shared, tolerance)
        odd |= {name: agreement[name].reason() for name, axis in axes.items() if axis is None}
        found = {name: one for name, one in axes.items() if one is not None and one != FIRST}
        found |= {name: axis for name, axis in self._capture.axes.items() if axis == SHARED and axes.get(name) == FIRST}
        return Verdict(called, found, odd, divisible=self._cuts)

    def _with_shared(self, names: Sequence[str], tolerance: float) -> Verdict:
        """Return the verdict where tables that all examples look up at once give each example rows of its own."""
        for tried in (names, []):
            self._capture.axes = dict.fromkeys(tried, SHARED) or dict.fromkeys(names, FIRST)
            try:
                return self.run(tolerance)
            except RuntimeError:  # the network does something else with what such a table puts out
                if not tried:
                    raise
            finally:
                self._capture.axes = {}
        raise AssertionError

    def _compared(self, examples: int) -> list[int]:
        """Return which examples are compared."""
        return _some(examples, CHECKED) if self._cuts else list(range(min(examples, CHECKED // 2)))

    def _pairs(self, compared: list[int], examples: int) -> Iterator[tuple[Batch, list[int], list[int], int]]:
        """Give parts of the batch, the examples of the whole that are compared, their places in the part, its size."""
        if not self._cuts:
            yield self._batch, compared, compared, examples
            return
        for start in range(0, len(compared), 2):
            rows = compared[start : start + 2]
            pair = rows if len(rows) == 2 or examples == 1 else [*rows, compared[0]]
            part = select_rows_beside(self._batch, pair, self._shared)
            yield part, rows, list(range(len(rows))), len(pair)

    def _forward(self, batch: Batch, names: Sequence[str]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the outputs, ready for gradients of the layers' parameters, and these."""
        capture = self._capture
        parameters = {one for name in names for one in self._layers[name].parameters.values()}
        leaves = {name: capture.state[name].detach().requires_grad_() for name in sorted(parameters)}
        capture.taps = False
        torch.manual_seed(0)
        try:
            normed, unfused = repaired_batch_norm(capture.model, batch), unfused_encoder(capture.model)
            with torch.enable_grad(), normed, unfused:
                state = capture.state | leaves
                outputs = read_outputs(functional_call(capture.model, state, batch.args, batch.kwargs))
        finally:
            capture.taps = True
        return self._check_outputs(outputs), leaves

    def _together(self, *, seed: int) -> Tensor:
        torch.manual_seed(seed)  # of a model that draws random numbers even in evaluation mode
        outputs = self._capture.forward(self._batch)
        try:
            return self._check_outputs(outputs)
        except ValueError as error:
            raise _WrongOutputsError from error

    def _is_random(self, outputs: Tensor) -> bool:
        """Whether the same examples have other outputs with other random numbers."""
        return self._cuts and not torch.equal(self._together(seed=1).detach(), outputs)


class _Agreement:
    """Which arrangements of a layer's examples have agreed with autograd so far."""

    def __init__(self, layer: Layer, calls: Sequence[Call], examples: int, compared: Sequence[int]) -> None:
        self._layer, self._examples = layer, examples
        self._shapes = [tuple(call.inputs.shape) for call in calls]
        self._calls = {axis: _cut(calls, axis, examples, compared) for axis in AXES}  # of the compared examples
        self._axes = [axis for axis, own in self._calls.items() if own is not None]
        self._places = {row: place for place, row in enumerate(compared)}
        self._seen = False  # whether a gradient was other than zero

    @property
    def axis(self) -> str | None:
        """Return the arrangement, or None where there is none; a gradient of zero speaks for none but the first."""
        usable = self._axes if self._seen else self._axes[: self._axes[:1] == [FIRST]]
        return usable[0] if usable else None

    @property
    def may_be_shared(self) -> bool:
        """Whether the layer is a table that is looked into once for all examples."""
        return self._layer.rule.sparse and self._examples > 1 and all(shape[0] == 1 for shape in self._shapes)

    def reason(self) -> str:
        """Say what is wrong where there is no arrangement."""
        shapes = [shape for shape in self._shapes if shape[:1] != (self._examples,)]
        if not shapes or (self._seen and all(shape and shape[0] % self._examples == 0 for shape in shapes)):
            return DIFFERENT_GRADIENTS
        why = "the examples cannot be told apart"
        if self._axes and not self._seen:
            why = "it is unknown where the examples are: all gradients were zero in the first batch"
        return f"its inputs have the shape {shapes[0]} in a batch of {self._examples}, so that {why}"

    def compare(self, row: int, gradients: Mapping[str, Tensor | None], tolerance: float) -> None:
        """Drop arrangements whose gradient of an example is not autograd's, up to the first that agrees."""
        for axis in list(self._axes):
            try:
                matrix, size = self._gradient(axis, row)
                own = self._layer.as_parameters(matrix)
            except (RuntimeError, ValueError, AssertionError):  # a rule that does not take the shape
                self._axes.remove(axis)
                continue
            difference, length = 0.0, 0.0
            for name, captured in own.items():
                expected = gradients[name]
                expected = expected.to_dense() if expected is not None and expected.is_sparse else expected
                if expected is None:
                    difference += float(captured.norm()) ** 2
                    continue
                difference += float((captured - expected).norm()) ** 2
                length += float(expected.norm()) ** 2
            if not isfinite(difference + length):  # the pass itself refuses them, and names the batch
                self._seen = True
                return
            self._seen = self._seen or length > 0
            if difference**0.5 <= tolerance * (length**0.5 + 0.1 * size):
                return  # those after it are looked at when it fails
            self._axes.remove(axis)

    def _gradient(self, axis: str, row: int) -> tuple[Tensor, float]:  # -> (G, A)
        """Return the captured gradient of an example, and how large it could be."""
        total, size, place = None, 0.0, self._places[row]
        for call in self._calls[axis] or ():
            assert call.gradients is not None
            one = slice(place, place + 1)
            matrix, length = _formed(self._layer, call, call.inputs[one], call.gradients[one])
            total = matrix if total is None else total + matrix
            size += length
        assert total is not None
        return total, size


def _cut(calls: Sequence[Call], axis: str, examples: int, compared: Sequence[int]) -> list[Call] | None:
    """Return some examples of the calls, the examples first, or None where the shapes have no room for them."""
    found = []
    for call in calls:
        assert call.gradients is not None
        if axis.startswith("parts") and call.inputs.shape[:1] == (examples,):  # one part: the same as the first
            return None
        inputs, gradients = arranged(call.inputs, axis, examples), arranged(call.gradients, axis, examples)
        if inputs is None or gradients is None:
            return None
        rows = list(compared)
        found.append(Call(call.module, inputs[rows], 0, gradients[rows]))
    return found


def _some(examples: int, most: int) -> list[int]:
    """Return at most so many of the examples, taken at random, and always the same."""
    chosen: list[int] = torch.randperm(examples, generator=torch.Generator().manual_seed(examples))[:most].tolist()
    return chosen


def _formed(layer: Layer, call: Call, x: Tensor, g: Tensor) -> tuple[Tensor, float]:  # -> (G, A)
    """Return the gradient of one example in one call, and how large it could be."""
    rule = layer.rule
    if rule.sparse:
        values = rule.row_gradients(call.module, x, g)[0]
        matrix = values.new_zeros(layer.shape).index_add_(0, rule.row_indices(call.module, x)[0], values)
        return matrix, float(values.norm())
    if rule.forms:
        formed = rule.matrices(call.module, x, g)
        assert formed is not None
        return formed[0], float(formed.norm())
    inputs = rule.inputs(call.module, x).to(call.dtype)  # (H, 1, S, A)
    gradients = rule.gradients(call.module, g)  # (H, 1, S, G / H)
    return (gradients.mT @ inputs).flatten(0, 2), float(inputs.norm() * gradients.norm())


@contextmanager
def _set_aside(capture: Capture) -> Iterator[None]:
    """Have calls as they are, in the network's own dtype, for the time of the block."""
    kept = replace(capture)
    capture.arranges, capture.autocast, capture.axes = False, None, {}
    try:
        yield
    finally:
        capture.arranges, capture.autocast, capture.state, capture.axes = True, kept.autocast, kept.state, kept.axes
        capture.calls.clear()
        capture.odd.clear()


def _close(x: Tensor, y: Tensor, tolerance: float) -> bool:
    return bool((x - y).abs().max() <= tolerance * y.abs().max().clamp_min(torch.finfo(y.dtype).tiny))


def _dtype(capture: Capture) -> torch.dtype:
    """Return the narrowest floating type of the network's parameters."""
    kinds = {one.dtype for one in capture.state.values() if one.is_floating_point()}
    return min(kinds, key=lambda one: one.itemsize, default=torch.float32)


def _double(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value
