"""Frozen dataclasses to JSON and back: the one place that knows how a typed record is written and read.

The fields of a dataclass are the keys of a JSON object, and their types say what may stand there. Three kinds of
fields differ:

    field(default=None, metadata=LEFT_OUT)            has no key where its value is None
    field(default=None, metadata=FLAT)                a dataclass whose keys stand beside those of the dataclass that
                                                      holds it; None where the JSON has none of its keys
    field(default_factory=dict, metadata=OTHERS)      a mapping of all keys that no other field names
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
LEFT_OUT: Mapping[str, bool] = {"left_out": True}
FLAT: Mapping[str, bool] = {"flat": True}
OTHERS: Mapping[str, bool] = {"others": True}
WORDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", NoneType: "null"}


class NotThisRecord(ValueError):
    """JSON that is no value of the wanted type; the message is a phrase that says in which place and why."""


def to_json(value: Any) -> Any:
    """Return a value as JSON can hold it.

    Args:
        value: dataclasses, mappings, sequences, numbers, texts, paths and None, within each other.

    Returns:
        Dictionaries, lists, numbers, texts, booleans and None; a number that is not finite becomes None.

    Raises:
        TypeError: where something else is in it.

    Example:
        >>> to_json({"scores": (0.5, float("nan"))})
        {'scores': [0.5, None]}
    """
    if is_dataclass(value) and not isinstance(value, type):
        return _object(value)
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, str | int | bool):
        return value
    raise TypeError(f"a record holds dataclasses, numbers, texts, lists and mappings, got a {type(value).__name__}.")


def from_json(kind: type[T], content: Any, place: str = "") -> T:
    """Return the value of a type that JSON holds; the inverse of `to_json`.

    Args:
        kind: a dataclass, or another type that the fields of records have (`Mapping[str, float]`).
        content: what `json.loads` returned.
        place: where the content stands, for the message of an error ("result.scores").

    Raises:
        NotThisRecord: where a key is missing or unknown, or a value has another type.

    Example:
        >>> from_json(dict[str, float | None], {"nll": 1, "ece": None})
        {'nll': 1, 'ece': None}
    """
    value: T = _read(kind, content, place)
    return value


def _object(value: Any) -> dict[str, Any]:
    written: dict[str, Any] = {}
    for each in fields(value):
        item = getattr(value, each.name)
        if item is None and (each.metadata.get("left_out") or each.metadata.get("flat")):
            continue
        if each.metadata.get("flat") or each.metadata.get("others"):
            written |= to_json(item)
        else:
            written[each.name] = to_json(item)
    return written


def _read(kind: Any, content: Any, place: str) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any or isinstance(kind, TypeVar):
        return content
    if origin in (Union, UnionType):
        return _read_union(inner, content, place)
    if is_dataclass(kind):
        _check(isinstance(content, dict), place, "an object", content)
        return _read_object(kind, content, place)
    if origin is not None and issubclass(origin, Mapping):
        _check(isinstance(content, dict), place, "an object", content)
        return {key: _read(inner[1], item, _under(place, key)) for key, item in content.items()}
    if origin is not None and issubclass(origin, Sequence | set):
        _check(isinstance(content, list), place, "a list", content)
        kinds = [inner[0]] * len(content) if origin is not tuple or inner[-1] is Ellipsis else list(inner)
        _check(len(kinds) == len(content), place, f"a list of {len(kinds)}", content)
        items = (_read(kinds[at], item, f"{place}[{at}]") for at, item in enumerate(content))
        return origin(items) if origin in (tuple, set) else list(items)
    whole = isinstance(content, int) and not isinstance(content, bool)
    fits = whole if kind is int else whole or isinstance(content, float) if kind is float else isinstance(content, kind)
    _check(fits, place, WORDS[kind], content)
    return content


def _read_union(kinds: Sequence[Any], content: Any, place: str) -> Any:
    errors = []
    for kind in kinds:
        try:
            return _read(kind, content, place)
        except NotThisRecord as error:
            errors.append(error)
    real = [error for kind, error in zip(kinds, errors, strict=True) if kind is not NoneType]
    if len(real) == 1:  # "or null" would hide what is wrong inside
        raise real[0]
    names = " or ".join(WORDS.get(get_origin(kind) or kind, "an object") for kind in kinds)
    raise NotThisRecord(_wrong(place, names, content))


def _read_object(kind: Any, content: Mapping[str, Any], place: str) -> Any:
    hints, own_fields = _hints(kind), fields(kind)
    values: dict[str, Any] = {}
    named: set[str] = set()
    for each in own_fields:
        if each.metadata.get("flat"):
            group = _flat_type(hints[each.name])
            named |= _keys(group)
            there = {key: item for key, item in content.items() if key in _keys(group)}
            if there:
                values[each.name] = _read_object(group, there, place)
        elif not each.metadata.get("others"):
            named.add(each.name)
            if each.name in content:
                values[each.name] = _read(hints[each.name], content[each.name], _under(place, each.name))
            elif each.default is MISSING and each.default_factory is MISSING:
                raise NotThisRecord(f"'{_under(place, each.name)}' is missing")
    unknown = {key: item for key, item in content.items() if key not in named}
    rest = next((each.name for each in own_fields if each.metadata.get("others")), None)
    if rest is not None:
        values[rest] = unknown
    elif unknown:
        raise NotThisRecord(f"'{_under(place, next(iter(unknown)))}' is unknown")
    return kind(**values)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


@cache
def _keys(kind: Any) -> frozenset[str]:
    return frozenset(each.name for each in fields(kind))


def _flat_type(hint: Any) -> Any:
    """Return the dataclass of a flat field, which may be written `Group | None`."""
    return next((kind for kind in get_args(hint) if is_dataclass(kind)), hint)


def _under(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _check(fits: bool, place: str, wanted: str, content: Any) -> None:
    if not fits:
        raise NotThisRecord(_wrong(place, wanted, content))


def _wrong(place: str, wanted: str, content: Any) -> str:
    got = {dict: "an object", list: "a list", NoneType: "null"}.get(type(content), repr(content))
    return f"'{place}' must be {wanted}, got {got}" if place else f"it must be {wanted}, got {got}"
