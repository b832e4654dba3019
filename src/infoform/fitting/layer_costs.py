"""What the statistics of one layer cost in a fit: the sum of what its running sums say, pass by pass.

Flops count matrix products at two an entry, and leave out what is elementwise.
"""

from collections.abc import Sequence

from infoform.curvature.dimensions import Dimensions
from infoform.curvature.request import StatisticsRequest
from infoform.fitting.layer_sums import LayerSums
from infoform.fitting.pass_plan import held_statistics, layer_passes
from infoform.fitting.running_sums import SecondMoment, Sums


def statistics_bytes(
    size: Dimensions, request: StatisticsRequest, *, block: bool, sifted: bool = False, passes: int = 1
) -> tuple[int, int]:
    """Return the bytes of the running sums in the first and in the second pass (0 where there is none).

    Args:
        size: The sizes of the layer.
        request: What the fit is asked for.
        block: Whether the layer is small enough for its block.
        sifted: Whether the second pass reads the selected examples alone, so that the first sums the diagonal.
        passes: Of the fit of all layers: a layer that needs fewer keeps its sums.
    """
    request = request.of_layer(only_diagonal=size.only_diagonal)
    sums = LayerSums.planned(size, request, block=block)
    held = held_statistics(layer_passes(request, selects=sifted), request)
    first, *second = [sum(one.planned_bytes(size.dtype) for one in sums.of(statistics)) for statistics in held]
    return first, sum(second) if second or passes == 1 else first


def fit_flops(size: Dimensions, request: StatisticsRequest, *, block: bool, vectors: int) -> int:
    """Return the flops of an example in all passes of a fit, without forward and backward, for V Fisher vectors."""
    request = request.of_layer(only_diagonal=size.only_diagonal)
    sums = LayerSums.planned(size, request, block=block)
    return sum(_pass_flops(size, sums.of(one.statistics), vectors) for one in layer_passes(request))


def forward_flops(size: Dimensions) -> int:
    """Return the flops of an example's forward pass; its gradient pass takes three times as many."""
    if size.only_diagonal:  # an elementwise product, or rows of a table
        return 0
    return 2 * size.uses * size.weights


def eigen_flops(size: Dimensions, request: StatisticsRequest) -> int:
    """Return the flops of a fit's eigendecompositions, about nine for each entry and column."""
    return sum(one.eigen_flops() for one in _sources(size, request))


def eigen_bytes(size: Dimensions, request: StatisticsRequest) -> int:
    """Return about the working memory of the largest eigendecomposition."""
    return max((one.eigen_bytes() for one in _sources(size, request)), default=0)


def _sources(size: Dimensions, request: StatisticsRequest) -> list[SecondMoment]:
    request = request.of_layer(only_diagonal=size.only_diagonal)
    sources = LayerSums.empty(size, request, block=False).sources(request.bases)
    return [one for moments in sources.values() for one in moments]


def _pass_flops(size: Dimensions, sums: Sequence[Sums], vectors: int) -> int:
    """Return the flops of an example in one pass; ∇ is formed once for all sums, or for none where that is cheaper."""
    flops = [one.operations(size) for one in sums]
    unformed = [one.unformed for one in flops if one.unformed is not None]
    with_gradients = sum(one.per_vector for one in flops) + (0 if size.outer else forward_flops(size))
    each = min(with_gradients, sum(unformed)) if len(unformed) == len(flops) else with_gradients
    return sum(one.per_example for one in flops) + vectors * each
