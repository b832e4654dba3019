"""Linear layers, on vectors (S = 1) or with the weight shared over tokens or positions."""

from torch import Tensor, nn

from infoform.layers.base import LayerRule, with_bias_column


class LinearRule(LayerRule):
    """`nn.Linear`: every axis between the batch and the features is a shared position."""

    def applies(self, module: nn.Module) -> bool:
        return isinstance(module, nn.Linear) and type(module).forward is nn.Linear.forward

    def inputs(self, module: nn.Module, x: Tensor) -> Tensor:
        return with_bias_column(x.reshape(1, x.shape[0], -1, x.shape[-1]), module)

    def gradients(self, module: nn.Module, g: Tensor) -> Tensor:
        return g.reshape(1, g.shape[0], -1, g.shape[-1])
