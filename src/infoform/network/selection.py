"""Which layers the user wants: names and patterns, patterns to leave out, a function, or all that train."""

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from glob import escape

from torch import nn

from infoform.layers.attention import InProjection
from infoform.layers.parameter import ParameterUse
from infoform.network.candidates import Candidate, candidates

Selection = Sequence[str] | str | Callable[[str, nn.Module], bool] | None  # what `layers=` takes
NOT = "!"
ALL = "all"  # what `layers=` is given for every layer that trains, also those that have no posterior by default


def as_patterns(model: nn.Module, layers: Selection) -> Sequence[str] | str | None:
    """Return a selection as patterns, or as the string it is: a function is asked about every layer with a rule."""
    if layers is None or isinstance(layers, str) or not callable(layers):
        return layers
    known = [one for one in candidates(model) if one.rule is not None]
    chosen = [escape(one.name) for one in known if layers(one.name, _seen(one.module))]
    if not chosen:
        raise ValueError("layers= must choose at least one layer with a rule, and the function chose none.")
    return chosen


def _seen(module: nn.Module) -> nn.Module:
    """Return the module that a user knows: what stands for a part of one is none."""
    return module.owner if isinstance(module, InProjection | ParameterUse) else module


def selects(patterns: Sequence[str] | None, names: Iterable[str]) -> bool:
    """Whether patterns take a layer, which may have several names: one of those to take, and none to leave out."""
    wanted, unwanted = split_patterns(patterns)
    names = list(names)
    taken = not wanted or any(fnmatchcase(name, one) for name in names for one in wanted)
    return taken and not any(fnmatchcase(name, one) for name in names for one in unwanted)


def demanded(known: Sequence[Candidate], patterns: Sequence[str] | None) -> list[str]:
    """Return the patterns that take layers which get no posterior by default: those that match no others."""
    usual = [one.name for one in known if one.rule is not None and one.rule.by_default]
    return [one for one in split_patterns(patterns)[0] if not any(fnmatchcase(name, one) for name in usual)]


def split_patterns(patterns: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """Return the patterns of layers to take, and those of layers to leave out."""
    given = list(patterns or ())
    return [one for one in given if not one.startswith(NOT)], [one[1:] for one in given if one.startswith(NOT)]


def check_patterns(known: Iterable[Candidate], patterns: Sequence[str] | None) -> None:
    """Raise if there are no patterns, or one that matches no layer with a rule."""
    if patterns is None:
        return
    supported = [one.name for one in known if one.rule is not None]
    shown = ", ".join(f"'{name}'" for name in supported[:8]) + (", ..." if len(supported) > 8 else "")
    if len(patterns) == 0:
        raise ValueError(
            f"layers= must name layers with a rule, and the list is empty; the model has {shown or 'none'}. Leave "
            "layers= out for all that train."
        )
    for pattern in patterns:
        if pattern != ALL and not any(fnmatchcase(name, pattern.removeprefix(NOT)) for name in supported):
            raise ValueError(
                f"layers= must name layers with a rule, and '{pattern}' matches none; the model has {shown or 'none'}."
            )


def is_frozen(model: nn.Module) -> bool:
    """Whether no parameter trains: flags then say nothing of what the user wants."""
    return not any(parameter.requires_grad for parameter in model.parameters())
