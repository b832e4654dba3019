"""A table of words that the output layer uses, too, as language models have it.

    ∇ = Σ_s g_s e_{w_s}ᵀ + Σ_s h_s a_sᵀ    rows that were looked up, and the outputs' gradients times their inputs

The second part is as large as the table, so that ∇ is formed: for as many examples at a time as the fit's limits hold,
one of a large table.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn

from infoform.layers.base import LayerRule
from infoform.layers.embedding import EmbeddingRule


class TiedTableRule(LayerRule):
    """The weight (V, E) that an `nn.Embedding` and an `nn.Linear` share; found by `network/candidates.py`."""

    types: ClassVar[tuple[type[nn.Module], ...]] = ()
    by_default: ClassVar[bool] = False
    only_diagonal: ClassVar[bool] = True
    forms: ClassVar[bool] = True

    def applies(self, module: nn.Module) -> bool:
        return False

    def parameter_names(self, module: nn.Module) -> set[str]:
        return {"weight"}

    def shape(self, module: nn.Module) -> tuple[int, int]:
        return _weight(module).shape  # type: ignore[return-value]

    def matrix(self, module: nn.Module) -> Tensor:
        return _weight(module).detach()

    def parameters(self, module: nn.Module, matrix: Tensor) -> dict[str, Tensor]:
        return {"weight": matrix}

    def inputs(self, module: nn.Module, x: Tensor) -> Tensor:
        raise TypeError("a table that is also an output layer has two kinds of inputs.")

    def gradients(self, module: nn.Module, g: Tensor) -> Tensor:
        raise TypeError("a table that is also an output layer has two kinds of gradients.")

    def matrices(self, module: nn.Module, x: Tensor, g: Tensor) -> Tensor | None:
        if not isinstance(module, nn.Embedding):
            return g.flatten(1, -2).mT @ x.flatten(1, -2) if x.dim() > 2 else g.unsqueeze(2) * x.unsqueeze(1)
        rows = EmbeddingRule()
        indices, values = rows.row_indices(module, x), rows.row_gradients(module, x, g)
        formed = values.new_zeros(len(values), *self.shape(module))
        keys = torch.arange(len(values), device=values.device).unsqueeze(1) * self.shape(module)[0] + indices
        formed.flatten(0, 1).index_add_(0, keys.flatten(), values.flatten(0, 1))
        return formed

    def forms_matrices(self, module: nn.Module, g: Tensor) -> bool:
        return True


def _weight(module: nn.Module) -> Tensor:
    assert isinstance(module.weight, Tensor)
    return module.weight


TIED_TABLE = TiedTableRule()
