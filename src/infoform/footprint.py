"""What one layer costs: bytes of its posterior, bytes of its statistics during a fit, multiply-adds of a fit.

Bytes of a posterior are exact (those of INF, once it is known which columns of the basis its pairs use); flops count
matrix products at two an entry, as in gradients.py, and leave out what is elementwise.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from infoform.curvature import Wanted
from infoform.examples import kept_rows
from infoform.posteriors.rounding import vector_dtype
from infoform.sketch import OVERSAMPLING
from infoform.statistics import EXACT_LIMIT, STRIDE, is_sketched

Count = TypeVar("Count", int, Tensor)


@dataclass(frozen=True)
class Dimensions:
    """The sizes of one layer that its costs depend on."""

    outputs: int  # G
    inputs: int  # A
    columns: tuple[int, int]  # (g, a): kept columns of U_G and U_A
    dtype: torch.dtype  # of the statistics
    positions: int | None = None  # S, over all calls of an example; None where not known
    groups: int = 1  # H
    input_rank: int | None = None  # eigenpairs that a prior keeps of the inputs; None where it does not look at them
    core: int = 0  # pairs of each basis that are measured together

    @property
    def weights(self) -> int:
        return self.outputs * self.inputs

    @property
    def pairs(self) -> int:
        """Return the largest rank that the layer can have."""
        return self.columns[0] * self.columns[1]

    @property
    def truncated(self) -> bool:
        return self.columns != (self.outputs, self.inputs)

    @property
    def sides(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return (n, kept columns) of outputs and of inputs."""
        return (self.outputs, self.columns[0]), (self.inputs, self.columns[1])

    @property
    def outer(self) -> bool:
        return self.positions == 1 and self.groups == 1


def posterior_bytes(size: Dimensions, structure: str, options: Mapping[str, Any], *, rank: int) -> int:
    """Return the bytes of a layer's posterior; of INF the most they can be: every pair with columns of its own."""
    item, outputs, inputs = size.dtype.itemsize, size.outputs, size.inputs
    if structure == "diag":
        return _diagonal_bytes(size, options)
    if structure == "kfac":
        return item * (outputs**2 + inputs**2)
    if structure == "efb":
        return item * (outputs * size.columns[0] + inputs * size.columns[1] + size.pairs)
    if structure == "full":
        return item * (size.weights**2 + size.weights)
    if structure != "inf":
        raise ValueError(f"structure {structure!r} has no rule for its bytes in infoform.footprint; add one.")
    used = min(rank, size.columns[0]), min(rank, size.columns[1])
    kept = used[0] * used[1] if options["support"] == "grid" else rank
    return inf_bytes(size, options, pairs=kept, rows=used[0], columns=used[1], coupled=min(kept, size.core))


def prior_bytes(size: Dimensions) -> int:
    """Return what the prior stores for a layer besides τ: a precision for each input, and the leading eigenpairs."""
    if size.input_rank is None:
        return 0
    pairs, item = min(size.input_rank, size.inputs), size.dtype.itemsize
    vectors = torch.bfloat16.itemsize if size.dtype == torch.float32 else item
    return item * (size.inputs + pairs) + vectors * pairs * size.inputs


def inf_bytes(
    size: Dimensions, options: Mapping[str, Any], *, pairs: Count, rows: Count, columns: Count, coupled: Count
) -> Count:
    """Return the bytes of INF with this many kept pairs that use so many columns of U_G (`rows`) and of U_A.

    `coupled` of them were measured together, for a full core.
    """
    item = size.dtype.itemsize
    fixed = _diagonal_bytes(size, options)
    if options["correction"] == "scaled":
        fixed += size.weights + 2 * torch.float64.itemsize  # codes of S² and their scale
    full = options["core"] == "full"
    core = item * (coupled * (coupled - 1) // 2) if full else 0
    # which pairs are kept is told where these are not all of the columns', or in an order of their own
    index = 0 if options["support"] == "grid" and not full else 2 + 2 * ((rows >= 2**15) | (columns >= 2**15))
    vectors = (size.outputs * rows + size.inputs * columns) * vector_dtype(options["storage"], size.dtype).itemsize
    return fixed + vectors + core + pairs * (item + 2 * index)


def _diagonal_bytes(size: Dimensions, options: Mapping[str, Any]) -> int:
    storage = options["storage"] or size.dtype
    return size.weights * storage.itemsize + (2 * torch.float64.itemsize if storage == torch.uint8 else 0)


def statistics_bytes(size: Dimensions, wanted: Wanted, *, block: bool, sifted: bool = False) -> tuple[int, int]:
    """Return the bytes of the running sums in the first and in the second pass (0 where there is none).

    Where examples are chosen for the bases (`sifted`), the diagonal is summed in the first.
    """
    item, outputs, inputs = size.dtype.itemsize, size.outputs, size.inputs
    input_factor = inputs**2 if wanted.inputs or wanted.factors else 0
    if wanted.inputs and not _factors(wanted) and inputs > EXACT_LIMIT:
        width = _input_columns(size)
        input_factor = inputs * (1 + 2 * width)
    gradient_factor = outputs**2 if wanted.factors else 0
    measured = (size.weights if wanted.diagonal else 0) + (size.weights**2 if wanted.block and block else 0)
    if not wanted.bases:
        return item * (input_factor + gradient_factor + measured), 0
    first = sum(map(_moment_size, size.sides)) if "gradient" in wanted.bases else 0
    if "activation" in wanted.bases:
        first += inputs**2 + outputs**2
    else:
        first += input_factor + gradient_factor + (measured if sifted else 0)
    vectors = outputs * size.columns[0] + inputs * size.columns[1]
    projected = len(wanted.bases) * (vectors + size.pairs + (size.weights if size.truncated else 0))
    cores = len(wanted.cores) * (item * size.core**2 + 2 * torch.int64.itemsize * size.core)
    return item * first, item * (input_factor + gradient_factor + measured + projected) + cores


def waiting_bytes(size: Dimensions, *, chunk: int) -> int:
    """Return the bytes of rank-one gradients that wait for later batches, with one Fisher vector an example."""
    row = size.dtype.itemsize * (size.inputs + size.outputs)
    return row * kept_rows(row, chunk) if size.outer else 0


def chunk_bytes(size: Dimensions, *, examples: int, chunk: int, shared: int, single: bool) -> int:
    """Return about the bytes of patches and gradients that a fit has in hand at a time, copies included."""
    assert size.positions is not None
    item = size.dtype.itemsize
    if size.outer:  # squares, and the factors of the residual
        row = item * (size.inputs + size.outputs)
        return 2 * (waiting_bytes(size, chunk=chunk) if single else row * min(examples, max(1, chunk // row)))
    patches, gradient = item * size.groups * size.positions * size.inputs, item * size.weights
    return (2 * patches + 3 * gradient) * min(examples, max(1, shared // (patches + gradient)))


def eigen_bytes(size: Dimensions, wanted: Wanted) -> int:
    """Return about the working memory of the larger eigendecomposition: four matrices in float64."""
    whole = 4 * max(size.outputs, size.inputs) ** 2
    return torch.float64.itemsize * (whole if _factors(wanted) else 4 * max(map(_moment_size, size.sides)))


def forward_flops(size: Dimensions) -> int:
    """Return the flops of an example's forward pass; its gradient pass takes three times as many."""
    assert size.positions is not None
    return 2 * size.positions * size.weights


def fit_flops(size: Dimensions, wanted: Wanted, *, block: bool, vectors: int) -> int:
    """Return the flops of an example in all passes of a fit, without forward and backward, for V Fisher vectors."""
    assert size.positions is not None
    outputs, inputs, (g, a) = size.outputs, size.inputs, size.columns
    once = 2 * size.groups * size.positions * inputs**2 if _factors(wanted) or wanted.inputs else 0
    if wanted.inputs and not _factors(wanted) and inputs > EXACT_LIMIT:
        once = 2 * size.groups * size.positions * inputs * (1 + 2 * _input_columns(size)) // STRIDE
    each = 2 * size.positions * outputs**2 if _factors(wanted) else 0
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
    first = moments if "gradient" in wanted.bases else 0
    second = len(wanted.cores) * 2 * size.core**2
    second += len(wanted.bases) * (project + (residual // STRIDE if size.truncated else 0))
    second += (squares if wanted.diagonal else 0) + (2 * size.weights**2 if wanted.block and block else 0)
    formed = form * ((first > 0) + (second > 0))  # in each pass that needs it
    return once + vectors * (each + first + second + formed)


def eigen_flops(size: Dimensions, wanted: Wanted) -> int:
    """Return the flops of a fit's eigendecompositions, about nine for each entry and column."""
    whole = 9 * (size.outputs**3 + size.inputs**3)
    moments = sum(8 * n * _test_columns(k) ** 2 if is_sketched(n, k) else 9 * n**3 for n, k in size.sides)
    return (moments if "gradient" in wanted.bases else 0) + (whole if "activation" in wanted.bases else 0)


def _input_columns(size: Dimensions) -> int:
    return min(size.inputs, _test_columns(size.input_rank)) if size.input_rank else 0


def _test_columns(kept: int) -> int:
    return kept + OVERSAMPLING


def _moment_size(side: tuple[int, int]) -> int:
    """Return the numbers that the moment of one side takes: whole, or a sketch with its test matrix."""
    size, kept = side
    return 2 * size * min(size, _test_columns(kept)) if is_sketched(*side) else size**2


def _factors(wanted: Wanted) -> bool:
    return wanted.factors or "activation" in wanted.bases
