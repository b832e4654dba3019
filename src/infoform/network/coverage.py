"""Which parameters have a posterior, and why the others are held fixed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Column, Table
from torch import nn

from infoform.layers import supported_types
from infoform.layers.attention import InProjection
from infoform.layers.parameter import ParameterUse
from infoform.network.candidates import Candidate, candidates
from infoform.network.layer import Layer
from infoform.network.selection import ALL, check_patterns, demanded, is_frozen, selects, split_patterns

NOT_SELECTED = "not selected by layers="
FROZEN = "frozen: its parameters have requires_grad=False"
ON_DEMAND = 'layers="all" gives it an exact diagonal'
NOT_BY_DEFAULT = f"held fixed by default; {ON_DEMAND}"


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
            reason = f"{_kind(layer.module)} '{layer.name}'" + (f"; {note}" if note else "")
        owner = None if layer is None else layer.name
        rows.append(ParameterCoverage(name, tuple(parameter.shape), owner, structure, reason))
    return Coverage(rows)


def _kind(module: nn.Module) -> str:
    return type(module.owner if isinstance(module, InProjection | ParameterUse) else module).__name__


def find_layers(
    model: nn.Module, patterns: Sequence[str] | str | None = None, *, frozen: bool = False
) -> tuple[dict[str, Layer], dict[str, str]]:
    """Return the layers that get a posterior, by name, and why every other parameter is held fixed.

    Args:
        model: any model.
        patterns: names or patterns of layers, also of such to leave out ("!head*"); "all", alone or among them, for
            all; None for those whose rule counts by default. A pattern takes the others where it matches none of these.
        frozen: whether layers with `requires_grad=False` count. They do where the user names layers, and where the
            whole model is frozen.
    """
    known = candidates(model)
    every = patterns is not None and (patterns == ALL or ALL in patterns)
    chosen = None if patterns is None or patterns == ALL else [one for one in patterns if one != ALL]
    check_patterns(known, chosen or None if every else chosen)
    on_demand = None if every else demanded(known, chosen)
    frozen = frozen or bool(split_patterns(chosen)[0]) or is_frozen(model)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    users: dict[int, list[Candidate]] = {}
    for candidate in known:
        for parameter in candidate.own.values():
            users.setdefault(id(parameter), []).append(candidate)

    layers: dict[str, Layer] = {}
    reasons: dict[str, str] = {}
    for candidate in known:
        name, own, rule = candidate.name, candidate.own, candidate.rule
        if all(names[id(parameter)] in reasons for parameter in own.values()):
            continue
        sharing = [user for parameter in own.values() for user in users[id(parameter)]]
        strangers = [other.name for other in sharing if not other.uses_as(candidate)]
        still = [] if frozen else [key for key, parameter in own.items() if not parameter.requires_grad]
        if rule is None:
            reason = FROZEN if len(still) == len(own) else candidate.reason
        elif strangers:
            reason = f"shares a parameter with '{strangers[0]}', which does not use it in the same way"
        elif not selects(None if every and not chosen else chosen, [other.name for other in sharing]):
            reason = NOT_SELECTED
        elif len(still) == len(own):
            reason = FROZEN
        elif still:
            reason = f"its {' and '.join(still)} is frozen, and a layer has a posterior as a whole; name it in layers="
        elif not (rule.by_default or every or selects(on_demand or ["!*"], [other.name for other in sharing])):
            reason = f"{candidate.reason}; {ON_DEMAND}" if candidate.reason else NOT_BY_DEFAULT
        else:
            modules = tuple(dict.fromkeys(module for user in sharing for module in user.users))
            if not any(layer.modules == modules for layer in layers.values()):
                layers[name] = Layer(name, rule, modules, {key: names[id(p)] for key, p in own.items()})
            continue
        reasons.update({names[id(parameter)]: reason for parameter in own.values()})
    for layer in layers.values():  # a parameter with a posterior needs no excuse
        for parameter_name in layer.parameters.values():
            reasons.pop(parameter_name, None)
    _check_some(model, layers, chosen, reasons)
    return layers, reasons


def ordinary_layers(model: nn.Module) -> dict[str, Layer]:
    """Return the layers that count where nobody names any, frozen or not: what novelty looks at."""
    every, _ = find_layers(model, ALL, frozen=True)
    return {name: layer for name, layer in every.items() if layer.rule.by_default}


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
    demanded = any(ON_DEMAND in one for one in reasons.values())
    remedy = 'pass layers="all"' if demanded else "add a rule in infoform.layers"

    raise ValueError(
        f"the model must have at least one layer with a rule ({', '.join(supported_types(by_default=True))}) to give a "
        f"posterior, got parameters only in {', '.join(kinds) or 'no module'}; {remedy}."
    )
