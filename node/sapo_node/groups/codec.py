"""Converts frozen dataclasses to JSON and back, and checks every type. Pipes and storage use this form only.

- A dataclass is an object. A missing field takes its default. `to_json` leaves a field out only if its value and its
  default are both None, or both the same empty value. It writes every other default, so that a later version can
  change the default.
- The key of a field is its name. `metadata={"key": ...}` sets another key: a renamed field keeps the key under which
  older versions stored it.
- A tuple is a list. A mapping is an object, which writes whole numbers as keys in decimal.
- A `float` may be given as a whole number. No other type is converted: True is not a number. Numbers are finite.
- `from_json` refuses a key that the dataclass lacks, so a misspelt field never passes as a default.
- A TypedDict is an object, too. `from_json` keeps keys that the TypedDict does not name, unread: versions add keys.

    body = to_json(TrainRequest(7, groups))
    request = from_json(TrainRequest, body)
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints, is_typeddict

from sapo_protocol.errors import LocalError

T = TypeVar("T")

_LARGEST = sys.float_info.max
_NOTHING: tuple[Any, ...] = (None, "", (), {})
_PLAIN = frozenset({str, int, float, bool, NoneType})


class MalformedError(LocalError, ValueError):
    """A JSON value has the wrong type. As any ValueError in a stored row, it says that the state is damaged."""


def to_json(value: Any) -> Any:
    """Return `value` as plain JSON: dataclasses, tuples, mappings, enumerations, texts, numbers, booleans and None."""
    if type(value) in _PLAIN:  # of nearly all values this is all that is asked
        return value
    if is_dataclass(value) and not isinstance(value, type):
        held = ((name, each, getattr(value, each.name)) for name, (each, _) in _fields(type(value)).items())
        return {name: to_json(item) for name, each, item in held if item not in _NOTHING or item != _default(each)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list):
        return list(value) if _PLAIN.issuperset(map(type, value)) else [to_json(each) for each in value]
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    return value


def to_object(value: Any) -> dict[str, Any]:
    """Return a dataclass as a JSON object."""
    body: dict[str, Any] = to_json(value)
    return body


def from_json(kind: type[T], body: Any) -> T:
    """Return the value of type `kind` that `body` encodes.

    Raises MalformedError with the path to the first value of a wrong type. An error of the dataclass's own checks
    passes through.
    """
    value: T = _value(kind, body, kind.__name__)
    return value


def _value(kind: Any, body: Any, path: str) -> Any:
    if type(body) is kind and kind is not float:  # a float may be infinite
        return body
    return _reader(kind)(kind, body, path)


@cache
def _reader(kind: Any) -> Callable[[Any, Any, str], Any]:
    """Return what reads a value of that type."""
    if is_dataclass(kind):
        return _dataclass
    if is_typeddict(kind):
        return _typed_dict
    if kind is float:
        return _number
    return {UnionType: _optional, tuple: _tuple, Mapping: _mapping}.get(get_origin(kind), _scalar)


def _dataclass(kind: Any, body: Any, path: str) -> Any:
    if not isinstance(body, dict):
        raise MalformedError(f"{path} must be an object")
    known = _fields(kind)
    if unknown := body.keys() - known.keys():
        raise MalformedError(f"{path} has no {min(unknown)!r}")
    if lacking := [name for name in _required(kind) if name not in body]:
        raise MalformedError(f"{path} lacks {lacking[0]!r}")
    parts = ((*known[name], name, item) for name, item in body.items())
    return kind(**{each.name: _value(hint, item, f"{path}.{name}") for each, hint, name, item in parts})


def _typed_dict(kind: Any, body: Any, path: str) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise MalformedError(f"{path} must be an object")
    if lacking := kind.__required_keys__ - body.keys():
        raise MalformedError(f"{path} lacks {min(lacking)!r}")
    hints = _hints(kind)
    return {key: _value(hints[key], item, f"{path}.{key}") if key in hints else item for key, item in body.items()}


_hints = cache(get_type_hints)


@cache
def _fields(kind: Any) -> "dict[str, tuple[Field[Any], Any]]":
    """Return each field and its type, by key."""
    hints = get_type_hints(kind)
    return {_name(each): (each, hints[each.name]) for each in fields(kind)}


@cache
def _required(kind: Any) -> tuple[str, ...]:
    """Return the keys of the fields without a default."""
    return tuple(name for name, (each, _) in _fields(kind).items() if _default(each) is MISSING)


def _name(each: "Field[Any]") -> str:
    name: str = each.metadata.get("key", each.name)
    return name


def _default(each: "Field[Any]") -> Any:
    return each.default if each.default_factory is MISSING else each.default_factory()


def _optional(kind: Any, body: Any, path: str) -> Any:
    """Read `X | None`; other unions are not used."""
    return None if body is None else _value(_other_than_none(kind), body, path)


@cache
def _other_than_none(kind: Any) -> Any:
    [inner] = [each for each in get_args(kind) if each is not NoneType]
    return inner


def _number(_kind: Any, body: Any, path: str) -> float:
    if type(body) in (int, float) and -_LARGEST <= body <= _LARGEST:
        return float(body)
    raise MalformedError(f"{path} must be a finite number")


def _tuple(kind: Any, body: Any, path: str) -> tuple[Any, ...]:
    kinds = get_args(kind)
    if not isinstance(body, list):
        raise MalformedError(f"{path} must be a list")
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        if _all_are(kinds[0], body):
            return tuple(body)
        kinds = (kinds[0],) * len(body)
    if len(body) != len(kinds):
        raise MalformedError(f"{path} must have {len(kinds)} items")
    return tuple(
        _value(kind, item, f"{path}[{place}]") for place, (kind, item) in enumerate(zip(kinds, body, strict=True))
    )


def _all_are(kind: Any, body: list[Any]) -> bool:
    """Return whether the items are all of one plain type. Nearly all items are tokens and their log-probabilities."""
    return kind in _PLAIN and {kind}.issuperset(map(type, body)) and (kind is not float or isfinite(sum(body)))


def _mapping(kind: Any, body: Any, path: str) -> dict[Any, Any]:
    keys, items = get_args(kind)
    if not isinstance(body, dict):
        raise MalformedError(f"{path} must be an object")
    return {_key(keys, key, path): _value(items, item, f"{path}[{_short(key)}]") for key, item in body.items()}


def _key(kind: type, key: str, path: str) -> Any:
    if kind is str:
        return key
    if key.isdecimal() and key.isascii() and len(key) <= 18:
        return int(key)
    raise MalformedError(f"{path} has the key {_short(key)}; give a whole number")


_NAMES = {str: "text", int: "a whole number", bool: "true or false"}


def _scalar(kind: Any, body: Any, path: str) -> Any:
    allowed = get_args(kind) if get_origin(kind) is Literal else ()
    if not allowed and issubclass(kind, Enum):
        allowed = tuple(each.value for each in kind)
    if allowed:
        if type(body) is str and body in allowed:
            return kind(body) if isinstance(kind, type) else body
        raise MalformedError(f"{path} is {_short(body)}; give one of: {', '.join(allowed)}")
    raise MalformedError(f"{path} must be {_NAMES[kind]}")


def _short(body: Any) -> str:
    return repr(body)[:80]
