"""Bytes of a layer's posterior, from its sizes alone."""

from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

from infoform.curvature.dimensions import Dimensions
from infoform.posteriors.quantise import vector_dtype

Count = TypeVar("Count", int, Tensor)


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
