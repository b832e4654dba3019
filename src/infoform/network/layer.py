"""One layer of the user's model: a weight matrix, the modules that use it, and the rule that reads them."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from infoform.layers import LayerRule
from infoform.network.private_copy import ModelCopy


@dataclass(frozen=True)
class Layer:
    """A weight matrix (G, A) with a rule, and the modules that use it (several where the weights are tied)."""

    name: str
    rule: LayerRule
    modules: tuple[nn.Module, ...]
    parameters: Mapping[str, str]  # "weight", "bias" -> the parameter's name in the model

    @property
    def module(self) -> nn.Module:
        return self.modules[0]

    @property
    def shape(self) -> tuple[int, int]:  # (G, A)
        return self.rule.shape(self.module)

    @property
    def mean(self) -> Tensor:  # (G, A)
        return self.rule.matrix(self.module)

    def on(self, copy: ModelCopy) -> "Layer":
        """Return this layer with the modules of a copy of the model."""
        return Layer(self.name, self.rule, tuple(copy.of(module) for module in self.modules), self.parameters)

    def as_parameters(self, matrix: Tensor) -> dict[str, Tensor]:  # (..., G, A)
        """Cut a matrix of this layer into the model's parameters, by their names in the model."""
        cut = self.rule.parameters(self.module, matrix)
        return {self.parameters[key]: value for key, value in cut.items()}
