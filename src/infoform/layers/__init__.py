"""Layer types with a rule: to add one, write a file with a `LayerRule` and a line in `LAYERS`."""

from torch import nn

from infoform.layers.base import LayerRule
from infoform.layers.convolution import ConvolutionRule
from infoform.layers.linear import LinearRule

LAYERS: dict[str, LayerRule] = {
    "linear": LinearRule(),
    "convolution": ConvolutionRule(),
}


def find_rule(module: nn.Module) -> LayerRule | None:
    """Return the rule for this module, or None where infoform has none."""
    return next((rule for rule in LAYERS.values() if rule.applies(module)), None)


__all__ = ["LAYERS", "LayerRule", "find_rule"]
