"""Which parameters have a posterior, and why the others are held fixed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Column, Table
from torch import nn

from infoform.layers import LAYERS, find_rule, supported_types
from infoform.network.layer import Layer
from infoform.network.selection import check_patterns, is_frozen, selects, split_patterns

NOT_SELECTED = "not selected by layers="
FROZEN = "frozen: its parameters have requires_grad=False"


@dataclass(frozen=True)
class ParameterCoverage:
    """One parameter of the model: with a posterior, or held fixed for a reason.

    Args:
        parameter: name of the parameter in the model.
        shape: shape of the parameter.
        layer: name of the layer that has it, where that layer has a rule.
        structure: structure of the layer's posterior, or None if the parameter is held fixed.
        reason: what layer it belongs to, or why it is held fixed.
    """

    parameter: str
    shape: tuple[int, ...]
    layer: str | None
    structure: str | None  # None: held fixed
    reason: str

    @property
    def covered(self) -> bool:
        """Whether the parameter has a posterior."""
        return self.structure is not None


class Coverage(Sequence[ParameterCoverage]):
    """One row for every parameter of the model; prints as a table.

    Args:
        rows: one for each parameter, in the order of the model.

    Example:
        ```python
        from torch import nn
        import infoform
        laplace = infoform.Laplace(nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.Linear(8, 2)), "classification")
        assert [row.parameter for row in laplace.coverage() if not row.covered] == ["1.weight", "1.bias"]
        ```
    """

    def __init__(self, rows: Sequence[ParameterCoverage]) -> None:
        self.rows = tuple(rows)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[ParameterCoverage]:
        return iter(self.rows)

    def __str__(self) -> str:
        table = Table(Column("parameter", overflow="fold"), "shape", "posterior", "why")
        for row in self:
            table.add_row(row.parameter, "×".join(map(str, row.shape)), row.structure or "fixed", row.reason)
        console = Console(width=120)
        with console.capture() as captured:
            console.print(table)
        return captured.get()


def describe(
    model: nn.Module, layers: Mapping[str, Layer], fixed: Mapping[str, str], structures: Mapping[str, tuple[str, str]]
) -> Coverage:
    """Say of every parameter which structure it has, or why none.

    `fixed` gives the reason for parameters outside of `layers`, and for layers by their name; `structures` the
    structure of a layer and a note on it.
    """
    owners = {parameter: layer for layer in layers.values() for parameter in layer.parameters.values()}
    rows = []
    for name, parameter in model.named_parameters():
        layer = owners.get(name)
        if layer is None or layer.name not in structures:
            structure, reason = None, fixed[name if layer is None else layer.name]
        else:
            structure, note = structures[layer.name]
            reason = f"{type(layer.module).__name__} '{layer.name}'" + (f"; {note}" if note else "")
        owner = None if layer is None else layer.name
        rows.append(ParameterCoverage(name, tuple(parameter.shape), owner, structure, reason))
    return Coverage(rows)


def find_layers(
    model: nn.Module, patterns: Sequence[str] | None = None, *, frozen: bool = False
) -> tuple[dict[str, Layer], dict[str, str]]:
    """Return the layers that get a posterior, by name, and why every other parameter is held fixed.

    Args:
        model: any model.
        patterns: names or patterns of layers, also of such to leave out ("!head*"); None for all.
        frozen: whether layers with `requires_grad=False` count. They do where the user names layers, and where the
            whole model is frozen.
    """
    check_patterns(model, patterns)
    frozen = frozen or bool(split_patterns(patterns)[0]) or is_frozen(model)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    users: dict[int, list[tuple[str, nn.Module]]] = {}
    for name, module in model.named_modules():
        for parameter in module.parameters(recurse=False):
            users.setdefault(id(parameter), []).append((name, module))

    layers: dict[str, Layer] = {}
    reasons: dict[str, str] = {}
    for name, module in model.named_modules():
        own = dict(module.named_parameters(recurse=False))
        if not own or all(names[id(parameter)] in reasons for parameter in own.values()):
            continue
        rule = find_rule(module)
        sharing = [user for parameter in own.values() for user in users[id(parameter)]]
        strangers = [other for other, user in sharing if not _same_parameters(user, module)]
        selected = selects(patterns, [other for other, _ in sharing])
        still = [] if frozen else [key for key, parameter in own.items() if not parameter.requires_grad]
        if rule is None:
            reason = _why_no_rule(module)
        elif own.keys() != rule.parameter_names(module):
            reason = f"the weight of '{name}' is computed from other parameters (weight or spectral norm, say)"
        elif strangers:
            reason = f"shares a parameter with '{strangers[0]}', which does not use it in the same way"
        elif not selected:
            reason = NOT_SELECTED
        elif len(still) == len(own):
            reason = FROZEN
        elif still:
            reason = f"its {' and '.join(still)} is frozen, and a layer has a posterior as a whole; name it in layers="
        else:
            modules = tuple(dict.fromkeys(user for _, user in sharing))
            if not any(layer.modules == modules for layer in layers.values()):
                layers[name] = Layer(name, rule, modules, {key: names[id(p)] for key, p in own.items()})
            continue
        reasons.update({names[id(parameter)]: reason for parameter in own.values()})
    for layer in layers.values():  # a parameter with a posterior needs no excuse
        for parameter_name in layer.parameters.values():
            reasons.pop(parameter_name, None)
    _check_some(model, layers, patterns, reasons)
    return layers, reasons


def _same_parameters(one: nn.Module, other: nn.Module) -> bool:
    first, second = dict(one.named_parameters(recurse=False)), dict(other.named_parameters(recurse=False))
    return type(one) is type(other) and first.keys() == second.keys() and all(first[k] is second[k] for k in first)


def _why_no_rule(module: nn.Module) -> str:
    kind = type(module)
    if any(isinstance(module, known) for rule in LAYERS.values() for known in rule.types):
        return f"{kind.__module__}.{kind.__qualname__} has a forward of its own, and no rule in infoform.layers"
    if any(True for _ in module.children()) and not kind.__module__.startswith("torch.nn"):
        return f"a parameter of {kind.__name__} itself, not of a layer with a rule in infoform.layers"
    return f"{kind.__name__} has no rule in infoform.layers"


def _check_some(
    model: nn.Module, layers: Mapping[str, Layer], patterns: Sequence[str] | None, reasons: Mapping[str, str]
) -> None:
    if layers:
        return
    if patterns is not None:
        raise ValueError(f"layers= must leave at least one layer that can have a posterior, got {list(patterns)}.")
    if FROZEN in reasons.values():
        raise ValueError(
            "at least one layer with a rule must train, and all of them have requires_grad=False; name those that are "
            "to have a posterior in layers=, or unfreeze them."
        )
    kinds = sorted({type(m).__name__ for m in model.modules() if any(True for _ in m.parameters(recurse=False))})
    raise ValueError(
        f"the model must have at least one layer with a rule ({', '.join(supported_types())}) to give a posterior, "
        f"got parameters only in {', '.join(kinds) or 'no module'}; add a rule in infoform.layers."
    )
