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


def register_rule(name: str, rule: LayerRule) -> None:
    """Give a type of module a rule of your own, from now on and in this process; it comes before all others.

    `infoform.load` needs the same rule, so register it wherever a posterior is loaded.

    Args:
        name: its name in `LAYERS`.
        rule: an object of a subclass of `LayerRule`.

    Raises:
        TypeError: if the rule is no `LayerRule`.
        ValueError: if a rule of another class has the name.

    Example:
        ```python
        infoform.register_rule("linear of mine", infoform.layers.linear.LinearRule())
        ```
    """
    if not isinstance(rule, LayerRule):
        raise TypeError(f"rule must be an object of a subclass of infoform.LayerRule, got {rule!r}.")
    known = LAYERS.get(name)
    if known is not None and type(known) is not type(rule):
        raise ValueError(f"name must be a new one, and {name!r} is the name of {type(known).__name__}; choose another.")
    others = {key: one for key, one in LAYERS.items() if key != name}
    LAYERS.clear()
    LAYERS.update({name: rule, **others})


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


__all__ = ["LAYERS", "LayerRule", "find_rule", "register_rule", "supported_types"]
