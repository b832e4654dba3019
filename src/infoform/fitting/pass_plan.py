"""A fit as data: the passes over the examples that it takes, and what each of them sums for each layer.

A fit without bases takes one pass. Eigenvectors of a basis must be known before anything is measured along them, so
that a fit with bases takes two: the first sums the moments whose eigenvectors are the bases, the second sums what is
measured along them. Of the statistics that need no basis, the inputs and the factors are summed as soon as all of the
data is read, and the diagonal where its per-example gradients are formed anyway:

    bases from               first pass                                     second pass
    all of the data          inputs, output gradients, moments              diagonal, block, projections
    a share of the batches   moments                                        inputs, diagonal, block, projections
    selected examples        inputs; of selected examples: moments;         of selected examples, which alone are read:
                             diagonal and block of each example in one      projections; the rest of diagonal and block
                             of both passes
    both                     of selected examples: moments                  inputs, diagonal, block; of selected
                                                                            examples: projections

An update measures along the bases that are known already, in one pass. Only layers that no gradient has reached before
need bases of their own, and with them a second pass.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from infoform.curvature.request import FitSettings, StatisticsRequest, selects_examples


class Statistic(Enum):
    """What is summed for a layer, in the order in which a pass adds an example to it."""

    INPUTS = "inputs"  # the input factor, or its diagonal and leading eigenvectors
    OUTPUT_GRADIENTS = "output gradients"  # the other Kronecker factor
    MOMENTS = "moments"  # whose eigenvectors are the gradient basis
    DIAGONAL = "diagonal"
    BLOCK = "block"
    PROJECTIONS = "projections"  # squares along the pairs of a basis, and what it leaves out


@dataclass(frozen=True)
class LayerPass:
    """What one pass sums for one layer, and over which examples."""

    every: tuple[Statistic, ...] = ()  # over every example that the pass reads
    selected: tuple[Statistic, ...] = ()  # over the selected examples alone
    once: tuple[Statistic, ...] = ()  # over every example, which one of the two passes adds

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        """Return all that the pass sums."""
        return (*self.every, *self.selected, *self.once)


@dataclass(frozen=True)
class PassPlan:
    """One pass over the data."""

    layers: Mapping[str, LayerPass]
    share: float = 1.0  # of the batches that are read, evenly spread
    rereads: bool = False  # whether the examples selected in the pass before are read, and no others
    scored: bool = True  # whether the likelihood of the labels is summed, as one of the passes does
    checked: bool = False  # whether the pass before has read all of the data, and found it finite

    @property
    def selects(self) -> bool:
        """Whether some sums are over selected examples, which the pass tells from the others."""
        return any(one.selected for one in self.layers.values())

    def of(self, names: Collection[str]) -> "PassPlan":
        """Return the plan of these layers alone."""
        return replace(self, layers={name: one for name, one in self.layers.items() if name in names})


def plan_passes(
    layers: Iterable[str],
    request: StatisticsRequest,
    settings: FitSettings,
    *,
    known: Collection[str] | None = None,
    only_diagonal: Collection[str] = (),
) -> tuple[PassPlan, ...]:
    """Return the passes of a fit.

    Args:
        layers: Names of the layers that are fitted.
        request: The statistics that the fit is asked for.
        settings: How they are measured.
        known: For an update, the layers whose bases an earlier fit has found; None for a first fit.
        only_diagonal: The layers of which nothing but the diagonal is measured: one pass over all of the data does.

    Returns:
        One plan a pass, in their order. The last may be left out where no gradient reaches its layers.
    """
    names, update = list(layers), known is not None
    share = 1.0 if update or not request.bases else settings.basis_data
    selects, whole = not update and selects_examples(request, settings), share == 1
    passes = {
        name: layer_passes(request.of(name), share=share, selects=selects)
        for name in names
        if name not in (known or ()) and name not in only_diagonal
    }
    sums = {name: passes[name][0] if name in passes else LayerPass(results(request.of(name))) for name in names}
    diagonal = LayerPass((Statistic.DIAGONAL,))
    sums |= {name: diagonal if whole else LayerPass() for name in names if name in only_diagonal}
    first = PassPlan(sums, share=share, scored=whole)
    again = {name: of_layer[1] for name, of_layer in passes.items() if len(of_layer) == 2}
    again |= {} if whole else dict.fromkeys((name for name in names if name in only_diagonal), diagonal)
    second = {name: again[name] for name in names if name in again}
    if not second:
        return (first,)
    return first, PassPlan(second, rereads=selects and whole, scored=not whole, checked=whole)


def layer_passes(request: StatisticsRequest, *, share: float = 1.0, selects: bool = False) -> tuple[LayerPass, ...]:
    """Return what the passes of a fit sum for a layer whose bases are not known.

    Args:
        request: The statistics that the fit is asked for.
        share: Share of the batches that the first of two passes reads.
        selects: Whether bases are found from, and measured on, selected examples.
    """
    if not request.bases:  # the second pass alone reads all of the data, if the first reads a share
        sums = LayerPass(results(request))
        return (sums,) if share == 1 else (LayerPass(), sums)
    factors = request.factors or "activation" in request.bases
    inputs = _given({Statistic.INPUTS: factors or request.inputs, Statistic.OUTPUT_GRADIENTS: factors})
    moments = _given({Statistic.MOMENTS: "gradient" in request.bases})
    squares = _given({Statistic.DIAGONAL: request.diagonal, Statistic.BLOCK: request.block})
    projections = (Statistic.PROJECTIONS,)
    if selects and share == 1:
        return LayerPass(inputs, selected=moments, once=squares), LayerPass(projections, once=squares)
    if selects:
        return LayerPass(selected=moments), LayerPass((*inputs, *squares), selected=projections)
    if share < 1:
        return LayerPass(moments), LayerPass((*inputs, *squares, *projections))
    return LayerPass((*inputs, *moments)), LayerPass((*squares, *projections))


def results(request: StatisticsRequest) -> tuple[Statistic, ...]:
    """Return what the curvature is made of; all else is forgotten when the bases are found from it."""
    return _given(
        {
            Statistic.INPUTS: request.inputs or request.factors,
            Statistic.OUTPUT_GRADIENTS: request.factors,
            Statistic.DIAGONAL: request.diagonal,
            Statistic.BLOCK: request.block,
            Statistic.PROJECTIONS: bool(request.bases),
        }
    )


def held_statistics(passes: Sequence[LayerPass], request: StatisticsRequest) -> list[tuple[Statistic, ...]]:
    """Return, pass by pass, what is in memory: what the pass sums, and the results of those before it."""
    kept, summed = results(request), [set(one.statistics) for one in passes]
    before: list[set[Statistic]] = [set().union(*summed[:number]) & set(kept) for number in range(len(passes))]
    return [tuple(one for one in Statistic if one in now | then) for now, then in zip(summed, before, strict=True)]


def _given(wanted: Mapping[Statistic, bool]) -> tuple[Statistic, ...]:
    return tuple(one for one, is_wanted in wanted.items() if is_wanted)
