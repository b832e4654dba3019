"""Options that belong together are one dataclass: the verb takes it as one argument, the command line has its fields.

A field is `name: Annotated[type, option(...)] = default`. typer reads the signature of a wrapper, in which the fields
stand in the place of the dataclass.
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
        for each in fields(kind):
            default = inspect.Parameter.empty if each.default is MISSING else each.default
            hint = inner[each.name]
            parameters.append(
                inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)
            )
        groups[parameter.name] = kind, [each.name for each in fields(kind)]

    @wraps(verb)
    def flat(**values: Any) -> None:
        gathered = {
            name: kind(**{field: values.pop(field) for field in names}) for name, (kind, names) in groups.items()
        }
        verb(**values, **gathered)

    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat
