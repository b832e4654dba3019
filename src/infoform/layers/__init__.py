"""Layer types with a rule: to add one, write a file with a `LayerRule` and a line in `LAYERS`."""

from torch import nn

from infoform.layers.attention import InProjectionRule
from infoform.layers.base import LayerRule
from infoform.layers.convolution import ConvolutionRule
from infoform.layers.embedding import EmbeddingBagRule, EmbeddingRule
from infoform.layers.linear import LinearRule
from infoform.layers.linear_function import LinearFunctionRule, TransposedLinearRule
from infoform.layers.norm import NormRule
from infoform.layers.scale_function import ScaleFunctionRule
from infoform.layers.transposed_convolution import TransposedConvolutionRule

LAYERS: dict[str, LayerRule] = {
    "linear": LinearRule(),
    "convolution": ConvolutionRule(),
    "transposed convolution": TransposedConvolutionRule(),
    "linear function": LinearFunctionRule(),
    "transposed linear": TransposedLinearRule(),
    "attention": InProjectionRule(),
    "embedding": EmbeddingRule(),
    "embedding bag": EmbeddingBagRule(),
    "norm": NormRule(),
    "scale function": ScaleFunctionRule(),
}


def find_rule(module: nn.Module) -> LayerRule | None:
    """Return the rule for this module, or None where infoform has none.

    Args:
        module: any module.

    Returns:
        The first rule of `LAYERS` that applies to it.

    Example:
        ```python
        from torch import nn
        from infoform.layers import find_rule
        assert find_rule(nn.Linear(3, 2)) is not None and find_rule(nn.ReLU()) is None
        ```
    """
    return next((rule for rule in LAYERS.values() if rule.applies(module)), None)


def supported_types(*, by_default: bool = False) -> list[str]:
    """Return the names of the module types that have a rule.

    Args:
        by_default: whether only those that get a posterior where the user names no layers.

    Returns:
        Names of classes, in the order of `LAYERS`.

    Example:
        ```python
        from infoform.layers import supported_types
        assert supported_types()[:2] == ["Linear", "Conv1d"]
        ```
    """
    rules = [rule for rule in LAYERS.values() if rule.by_default or not by_default]
    return [known.__name__ for rule in rules for known in rule.types]


__all__ = ["LAYERS", "LayerRule", "find_rule", "supported_types"]
