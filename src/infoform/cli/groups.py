"""Options that belong together as one dataclass: a verb takes it as one argument, the command line shows its fields.

A field is `name: Annotated[type, typer.Option(...)] = default`; the wrapper's signature, which typer reads, has the
fields in place of the dataclass.
"""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints


def with_groups(verb: Callable[..., None]) -> Callable[..., None]:
    """Return the verb as typer understands it: every parameter that is a dataclass spread out into its fields."""
    hints = get_type_hints(verb, include_extras=True)
    groups: dict[str, tuple[Any, list[str]]] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(verb).parameters.values():
        kind = hints[parameter.name]
        if not (isinstance(kind, type) and is_dataclass(kind)):
            parameters.append(parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        inner = get_type_hints(kind, include_extras=True)
        for one in fields(kind):
            default = inspect.Parameter.empty if one.default is MISSING else one.default
            parameters.append(
                inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=inner[one.name])
            )
        groups[parameter.name] = kind, [one.name for one in fields(kind)]

    @wraps(verb)
    def flat(**given: Any) -> None:
        gathered = {
            name: kind(**{field: given.pop(field) for field in names}) for name, (kind, names) in groups.items()
        }
        verb(**given, **gathered)

    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat
