"""What one layer costs: bytes of its posterior, bytes of its statistics during a fit, multiply-adds of a fit.

Bytes of a posterior are exact (those of INF, once it is known which columns of the basis its pairs use); flops count
matrix products at two an entry, as in gradients.py, and leave out what is elementwise.
"""

import torch

from infoform.curvature.dimensions import Dimensions
from infoform.curvature.request import StatisticsRequest
from infoform.curvature.sketch import EXACT_LIMIT, OVERSAMPLING, is_sketched
from infoform.curvature.subsampling import STRIDE
from infoform.fitting.accumulate import waiting_rows


def statistics_bytes(
    size: Dimensions, request: StatisticsRequest, *, block: bool, sifted: bool = False
) -> tuple[int, int]:
    """Return the bytes of the running sums in the first and in the second pass (0 where there is none).

    Where examples are chosen for the bases (`sifted`), the diagonal is summed in the first.
    """
    item, outputs, inputs = size.dtype.itemsize, size.outputs, size.inputs
    input_factor = inputs**2 if request.inputs or request.factors else 0
    if request.inputs and not _factors(request) and inputs > EXACT_LIMIT:
        width = _input_columns(size)
        input_factor = inputs * (1 + 2 * width)
    gradient_factor = outputs**2 if request.factors else 0
    measured = (size.weights if request.diagonal else 0) + (size.weights**2 if request.block and block else 0)
    if not request.bases:
        return item * (input_factor + gradient_factor + measured), 0
    first = sum(map(_moment_size, size.sides)) if "gradient" in request.bases else 0
    if "activation" in request.bases:
        first += inputs**2 + outputs**2
    else:
        first += input_factor + gradient_factor + (measured if sifted else 0)
    vectors = outputs * size.columns[0] + inputs * size.columns[1]
    projected = len(request.bases) * (vectors + size.pairs + (size.weights if size.truncated else 0))
    cores = len(request.cores) * (item * size.core**2 + 2 * torch.int64.itemsize * size.core)
    return item * first, item * (input_factor + gradient_factor + measured + projected) + cores


def waiting_bytes(size: Dimensions, *, chunk: int) -> int:
    """Return the bytes of rank-one gradients that wait for later batches, with one Fisher vector an example."""
    row = size.dtype.itemsize * (size.inputs + size.outputs)
    return row * waiting_rows(row, chunk) if size.outer else 0


def chunk_bytes(size: Dimensions, *, examples: int, chunk: int, shared: int, single: bool) -> int:
    """Return about the bytes of patches and gradients that a fit has in hand at a time, copies included."""
    assert size.positions is not None
    item = size.dtype.itemsize
    if size.outer:  # squares, and the factors of the residual
        row = item * (size.inputs + size.outputs)
        return 2 * (waiting_bytes(size, chunk=chunk) if single else row * min(examples, max(1, chunk // row)))
    patches, gradient = item * size.groups * size.positions * size.inputs, item * size.weights
    return (2 * patches + 3 * gradient) * min(examples, max(1, shared // (patches + gradient)))


def eigen_bytes(size: Dimensions, request: StatisticsRequest) -> int:
    """Return about the working memory of the larger eigendecomposition: four matrices in float64."""
    whole = 4 * max(size.outputs, size.inputs) ** 2
    return torch.float64.itemsize * (whole if _factors(request) else 4 * max(map(_moment_size, size.sides)))


def forward_flops(size: Dimensions) -> int:
    """Return the flops of an example's forward pass; its gradient pass takes three times as many."""
    assert size.positions is not None
    return 2 * size.positions * size.weights


def fit_flops(size: Dimensions, request: StatisticsRequest, *, block: bool, vectors: int) -> int:
    """Return the flops of an example in all passes of a fit, without forward and backward, for V Fisher vectors."""
    assert size.positions is not None
    outputs, inputs, (g, a) = size.outputs, size.inputs, size.columns
    once = 2 * size.groups * size.positions * inputs**2 if _factors(request) or request.inputs else 0
    if request.inputs and not _factors(request) and inputs > EXACT_LIMIT:
        once = 2 * size.groups * size.positions * inputs * (1 + 2 * _input_columns(size)) // STRIDE
    each = 2 * size.positions * outputs**2 if _factors(request) else 0
    if size.outer:
        form, squares = 0, 2 * size.weights
        moments = sum(4 * n * _test_columns(kept) if is_sketched(n, kept) else 2 * n**2 for n, kept in size.sides)
        project = 2 * (inputs * a + outputs * g) + 2 * size.pairs
        residual = 2 * (inputs * a + outputs * g) + 6 * size.weights
    else:
        form, squares = 2 * size.positions * size.weights, 2 * size.weights
        dense = [
            4 * size.weights * _test_columns(k) if is_sketched(n, k) else 2 * size.weights * n for n, k in size.sides
        ]
        moments = sum(dense)
        if size.groups == 1 and all(is_sketched(*side) for side in size.sides):  # ∇ need not be formed
            factored = 4 * size.positions * (outputs + inputs) * sum(_test_columns(kept) for _, kept in size.sides)
            moments = min(moments, factored - form)
        project = 2 * min(outputs * a * (inputs + g), g * inputs * (outputs + a)) + 2 * size.pairs
        residual = 2 * outputs * g * a + 2 * outputs * a * inputs
    first = moments if "gradient" in request.bases else 0
    second = len(request.cores) * 2 * size.core**2
    second += len(request.bases) * (project + (residual // STRIDE if size.truncated else 0))
    second += (squares if request.diagonal else 0) + (2 * size.weights**2 if request.block and block else 0)
    formed = form * ((first > 0) + (second > 0))  # in each pass that needs it
    return once + vectors * (each + first + second + formed)


def eigen_flops(size: Dimensions, request: StatisticsRequest) -> int:
    """Return the flops of a fit's eigendecompositions, about nine for each entry and column."""
    whole = 9 * (size.outputs**3 + size.inputs**3)
    moments = sum(8 * n * _test_columns(k) ** 2 if is_sketched(n, k) else 9 * n**3 for n, k in size.sides)
    return (moments if "gradient" in request.bases else 0) + (whole if "activation" in request.bases else 0)


def _input_columns(size: Dimensions) -> int:
    return min(size.inputs, _test_columns(size.input_rank)) if size.input_rank else 0


def _test_columns(kept: int) -> int:
    return kept + OVERSAMPLING


def _moment_size(side: tuple[int, int]) -> int:
    """Return the numbers that the moment of one side takes: whole, or a sketch with its test matrix."""
    size, kept = side
    return 2 * size * min(size, _test_columns(kept)) if is_sketched(*side) else size**2


def _factors(request: StatisticsRequest) -> bool:
    return request.factors or "activation" in request.bases
