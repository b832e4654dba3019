"""Layer types with a rule: to add one, write a file with a `LayerRule` and a line in `LAYERS`."""

from torch import nn

from infoform.layers.base import LayerRule
from infoform.layers.convolution import ConvolutionRule
from infoform.layers.linear import LinearRule
from infoform.layers.linear_function import LinearFunctionRule, TransposedLinearRule

LAYERS: dict[str, LayerRule] = {
    "linear": LinearRule(),
    "convolution": ConvolutionRule(),
    "linear function": LinearFunctionRule(),
    "transposed linear": TransposedLinearRule(),
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
        assert find_rule(nn.Linear(3, 2)) is not None and find_rule(nn.LayerNorm(3)) is None
        ```
    """
    return next((rule for rule in LAYERS.values() if rule.applies(module)), None)


def supported_types() -> list[str]:
    """Return the names of the module types that have a rule.

    Returns:
        Names of classes, in the order of `LAYERS`.

    Example:
        ```python
        from infoform.layers import supported_types
        assert supported_types()[:2] == ["Linear", "Conv1d"]
        ```
    """
    return [known.__name__ for rule in LAYERS.values() for known in rule.types]


__all__ = ["LAYERS", "LayerRule", "find_rule", "supported_types"]
