"""Embeddings: of a table of rows, an example uses a few, and no others have a gradient.

    ∇ row r = Σ_s w_s g_s over the places s of an example that look up row r

Neither a one-hot row nor a matrix of vocabulary size an example is ever formed. Only the exact diagonal is measured.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from infoform.layers.base import LayerRule


class RowsRule(LayerRule):
    """A table of which an example uses some rows: `row_indices` and `row_gradients` take the place of `inputs`."""

    by_default: ClassVar[bool] = False
    only_diagonal: ClassVar[bool] = True
    sparse: ClassVar[bool] = True

    def parameter_names(self, module: nn.Module) -> set[str]:
        return {"weight"}

    def inputs(self, module: nn.Module, x: Tensor) -> Tensor:
        raise TypeError("the inputs of an embedding are rows of its table, which row_indices gives.")

    def gradients(self, module: nn.Module, g: Tensor) -> Tensor:
        raise TypeError("the gradients of an embedding belong to rows of its table; row_gradients gives them.")


class EmbeddingRule(RowsRule):
    """`nn.Embedding`, unless it changes its weights when it is called (`max_norm`)."""

    types: ClassVar[tuple[type[nn.Module], ...]] = (nn.Embedding,)

    def applies(self, module: nn.Module) -> bool:
        return super().applies(module) and module.max_norm is None

    def row_indices(self, module: nn.Module, x: Tensor) -> Tensor:
        return x.reshape(len(x), -1)

    def row_gradients(self, module: nn.Module, x: Tensor, g: Tensor) -> Tensor:
        assert isinstance(module, nn.Embedding)
        rows = g.reshape(len(g), -1, g.shape[-1])
        if module.padding_idx is None:
            return rows
        return rows.masked_fill((self.row_indices(module, x) == module.padding_idx).unsqueeze(2), 0)


class EmbeddingBagRule(RowsRule):
    """`nn.EmbeddingBag` of sums or means, with offsets or without; its calls are read as (N, L, 2)."""

    types: ClassVar[tuple[type[nn.Module], ...]] = (nn.EmbeddingBag,)

    def applies(self, module: nn.Module) -> bool:
        return super().applies(module) and module.max_norm is None and module.mode in ("sum", "mean")

    def argument(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor:
        assert isinstance(module, nn.EmbeddingBag)
        given = dict(zip(("input", "offsets", "per_sample_weights"), args, strict=False)) | dict(kwargs)
        rows, offsets, weights = given["input"], given.get("offsets"), given.get("per_sample_weights")
        weights = (
            torch.ones(rows.shape, dtype=torch.float64, device=rows.device) if weights is None else weights.double()
        )
        if module.padding_idx is not None:
            weights = weights.masked_fill(rows == module.padding_idx, 0)
        pairs = torch.stack([rows.double(), weights], dim=-1).detach()
        if offsets is not None:
            pairs = _bags(pairs, offsets[:-1] if module.include_last_offset else offsets)
        if module.mode == "mean":
            pairs[..., 1] /= pairs[..., 1].sum(1, keepdim=True).clamp_min(1)
        return pairs

    def row_indices(self, module: nn.Module, x: Tensor) -> Tensor:
        return x[..., 0].long()

    def row_gradients(self, module: nn.Module, x: Tensor, g: Tensor) -> Tensor:
        return g.unsqueeze(1) * x[..., 1].unsqueeze(2).to(g)


def _bags(pairs: Tensor, offsets: Tensor) -> Tensor:  # (L, 2), (N,) -> (N, L, 2)
    """Put the members of each bag into a row of its own, filled up with weights of zero."""
    bounds = [*offsets.tolist(), len(pairs)]
    parts = [pairs[start:stop] for start, stop in pairwise(bounds)]
    return nn.utils.rnn.pad_sequence(parts, batch_first=True) if parts else pairs.new_zeros(0, 0, 2)


def sum_rows(indices: Tensor, values: Tensor, *, height: int) -> tuple[Tensor, Tensor, Tensor]:  # (N, S), (N, S, A)
    """Add up what the places of an example give to the same row of a table.

    Args:
        indices: Rows of the table.
        values: What each place gives to its row.
        height: How many rows the table has.

    Returns:
        Example (P,), row of the table (P,) and sum (P, A) of each pair of both.
    """
    keys = torch.arange(len(indices), device=indices.device).unsqueeze(1) * height + indices
    pairs, places = keys.unique(return_inverse=True)
    sums = values.new_zeros(len(pairs), values.shape[-1])
    sums.index_add_(0, places.flatten(), values.flatten(0, 1))
    return pairs // height, pairs % height, sums
