"""What of a model may have a posterior: modules that have a rule, and single parameters that no rule of a module takes.

A parameter that several modules share is one layer where all of them use it in the same way. A table of words that is
also the weight of an output layer has a rule of its own; any other shared parameter is taken by itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor, nn

from infoform.layers import LAYERS, LayerRule, find_rule
from infoform.layers.attention import in_projection, in_projections
from infoform.layers.parameter import PARAMETER, VALUE, parameter_use
from infoform.layers.tied_table import TIED_TABLE


@dataclass(frozen=True)
class Candidate:
    """Parameters that belong together, and the rule that they have."""

    name: str  # of the layer that they make
    module: nn.Module
    own: dict[str, Tensor]  # by the names that the rule knows them by
    rule: LayerRule | None
    reason: str = ""  # why a parameter is taken by itself, or has no rule at all
    modules: tuple[nn.Module, ...] = ()  # whose calls are seen, where it is not the module alone

    @property
    def users(self) -> tuple[nn.Module, ...]:
        """Return the modules whose calls use the parameters."""
        return self.modules or (self.module,)

    def uses_as(self, other: "Candidate") -> bool:
        """Whether another one has the same parameters and the same rule, so that both are one layer."""
        if (self.rule is None and type(self.module) is not type(other.module)) or self.rule is not other.rule:
            return False
        same_kind = type(self.module) is type(other.module) or self.rule is TIED_TABLE
        return same_kind and self.own.keys() == other.own.keys() and all(self.own[k] is other.own[k] for k in self.own)


def candidates(model: nn.Module) -> list[Candidate]:
    """Return all parameters of a model, those of a layer together; shared ones come once for each module."""
    found: list[Candidate] = []
    for name, module in model.named_modules():
        own = dict(module.named_parameters(recurse=False))
        if own:
            found += _of_module(name, module, own)
    users: dict[int, list[Candidate]] = {}
    for one in found:
        for parameter in one.own.values():
            users.setdefault(id(parameter), []).append(one)
    parted: list[Candidate] = []
    for one in found:
        others = [user for parameter in one.own.values() for user in users[id(parameter)]]
        strangers = [other.name for other in others if not other.uses_as(one)]
        parted += _parted(one, strangers[0], users) if strangers and one.rule is not PARAMETER else [one]
    return parted


def _of_module(name: str, module: nn.Module, own: dict[str, nn.Parameter]) -> Iterator[Candidate]:
    if isinstance(module, nn.MultiheadAttention) and type(module).forward is nn.MultiheadAttention.forward:
        projection = in_projection(module)
        names = LAYERS["attention"].parameter_names(projection)
        if names <= own.keys():
            part = {key: one for key, one in own.items() if key in names}
            yield Candidate(name, projection, dict(part), LAYERS["attention"], modules=in_projections(module))
            own = {key: one for key, one in own.items() if key not in names}
    if not own:
        return
    rule = find_rule(module)
    if rule is not None and own.keys() == rule.parameter_names(module):
        yield Candidate(name, module, dict(own), rule)
        return
    why = _why_no_rule(module)
    if rule is not None:
        why = f"the weight of '{name}' is computed from other parameters (weight or spectral norm, say)"
    for key, parameter in own.items():
        yield _single(name, module, key, parameter, why)


def _single(name: str, module: nn.Module, key: str, parameter: Tensor, why: str) -> Candidate:
    """Return a parameter by itself; only numbers that have a gradient can be a layer."""
    rule = PARAMETER if parameter.is_floating_point() and parameter.numel() else None
    return Candidate(f"{name}.{key}".lstrip("."), parameter_use(module, key), {VALUE: parameter}, rule, why)


def _parted(one: Candidate, stranger: str, users: dict[int, list[Candidate]]) -> Iterator[Candidate]:
    """Give the parameters of a module one by one, where other modules use some of them in another way."""
    why = f"shares a parameter with '{stranger}', which does not use it in the same way"
    module = one.module
    for key, parameter in one.own.items():
        sharing = users[id(parameter)]
        plain = (LAYERS["linear"], LAYERS["embedding"])
        if len(sharing) > 1 and all(user.rule in plain and user.own.get("weight") is parameter for user in sharing):
            yield Candidate(one.name, module, {key: parameter}, TIED_TABLE, why)
        elif hasattr(module, key):
            yield _single(one.name, module, key, parameter, why)
        else:  # of what stands for a part of a module
            yield Candidate(one.name, module, {key: parameter}, None, why)


def _why_no_rule(module: nn.Module) -> str:
    kind = type(module)
    if any(isinstance(module, known) for rule in LAYERS.values() for known in rule.types):
        return f"{kind.__module__}.{kind.__qualname__} has a forward of its own, and no rule in infoform.layers"
    if any(True for _ in module.children()) and not kind.__module__.startswith("torch.nn"):
        return f"a parameter of {kind.__name__} itself, not of a layer with a rule in infoform.layers"
    return f"{kind.__name__} has no rule in infoform.layers"
