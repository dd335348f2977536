"""Converts frozen dataclasses to JSON and back, and checks every type. Pipes and storage use this form only.

- A dataclass is an object. A missing field takes its default. `to_json` leaves a field out only if its value and its
  default are both None, or both the same empty value. It writes every other default, so that a later version can
  change the default.
- The key of a field is its name.
- A tuple is a list. A mapping is an object, which writes whole numbers as keys in decimal.
- JSON has one type of numbers: 1 may be given as 1.0, and 1.0 as 1. No other type is converted: True is not a number.
- A number lies in the range that its type names, as `Count` does (`ranges`). `from_json` and `to_object` refuse others.
- `from_json` refuses a key that the dataclass lacks, so a misspelt field never passes as a default.
- A TypedDict is an object, too. `from_json` keeps keys that the TypedDict does not name, unread: versions add keys.

    body = to_json(TrainRequest(7, groups))
    request = from_json(TrainRequest, body)
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from itertools import repeat
from math import isfinite
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from sapo_node.groups.ranges import FLOAT, INTEGER, Range
from sapo_protocol.errors import LocalError

T = TypeVar("T")
Reader = Callable[[Any], Any]
"""Returns the value that a JSON value encodes. Raises _UnfitError."""

_NOTHING: tuple[Any, ...] = (None, "", (), {})
_PLAIN = frozenset({str, int, float, bool, NoneType})
_RANGES: Mapping[Any, Range] = {int: INTEGER, float: FLOAT}
WHOLE_KEY = "0|[1-9][0-9]{0,8}"
"""The grammar of a whole number as the key of an object, which is below MAX_COUNT."""


class MalformedError(LocalError, ValueError):
    """A JSON value has the wrong type. As any ValueError in a stored row, it says that the state is damaged."""


class _UnfitError(Exception):
    """What is wrong, and where below the value that is being read."""

    def __init__(self, said: str, path: str = "") -> None:
        super().__init__(said, path)
        self.said = said
        self.path = path

    def below(self, step: str) -> "_UnfitError":
        """The same, seen from one level up."""
        return _UnfitError(self.said, step + self.path)


def to_json(value: Any) -> Any:
    """Return `value` as plain JSON: dataclasses, tuples, mappings, enumerations, texts, numbers, booleans and None."""
    kind: Any = type(value)
    return value if kind in _PLAIN else _writer(kind)(value)


def to_object(value: Any) -> dict[str, Any]:
    """Return a dataclass as a JSON object that `from_json` reads. Raises MalformedError for a number out of range."""
    body: dict[str, Any] = to_json(value)
    from_json(type(value), body)
    return body


def from_json(kind: type[T], body: Any) -> T:
    """Return the value of type `kind` that `body` encodes.

    Raises MalformedError with the path to the first value of a wrong type. An error of the dataclass's own checks
    passes through.
    """
    key: Any = kind  # for mypy, a type variable has no hash
    try:
        value: T = _reader(key)(body)
    except _UnfitError as unfit:
        raise MalformedError(f"{kind.__name__}{unfit.path} {unfit.said}") from None
    return value


@cache
def _writer(kind: type) -> Callable[[Any], Any]:
    """Return what writes the values of a type."""
    if is_dataclass(kind):
        return _dataclass_writer(kind)
    if issubclass(kind, Enum):
        return lambda value: value.value
    if issubclass(kind, tuple | list):
        return lambda value: list(value) if _PLAIN.issuperset(map(type, value)) else [to_json(each) for each in value]
    if issubclass(kind, Mapping):
        return lambda value: {str(key): to_json(item) for key, item in value.items()}
    return lambda value: value


def _dataclass_writer(kind: type) -> Callable[[Any], Any]:
    held = [(key, each.name, _default(each)) for key, (each, _) in _fields(kind).items()]

    def write(value: Any) -> dict[str, Any]:
        items = ((key, getattr(value, name), default) for key, name, default in held)
        return {key: to_json(item) for key, item, default in items if item or item not in _NOTHING or item != default}

    return write


@cache
def _reader(kind: Any) -> Reader:
    """Return what reads the values of a type."""
    if is_dataclass(kind):
        return _dataclass_reader(kind)
    if is_typeddict(kind):
        return _typed_dict_reader(kind)
    if _inner(kind) in _RANGES:
        return _number_reader(kind)
    makers = {
        UnionType: _optional_reader,
        Union: _optional_reader,  # of an Annotated
        tuple: _tuple_reader,
        Mapping: _mapping_reader,
        Literal: _word_reader,
    }
    make = makers.get(get_origin(kind)) or (_word_reader if issubclass(kind, Enum) else _plain_reader)
    return make(kind)


def _dataclass_reader(kind: Any) -> Reader:
    known = _fields(kind)
    required = [key for key, (each, _) in known.items() if _default(each) is MISSING]
    readers = {key: _reader(hint) for key, (_, hint) in known.items()}
    names = {key: each.name for key, (each, _) in known.items()}

    def read(body: Any) -> Any:
        found = _object(body)
        if unknown := found.keys() - readers.keys():  # before what is lacking: a misspelt key is both
            raise _UnfitError(f"has no {min(unknown)!r}")
        _require(found, required)
        keys = list(found)
        values = _read_each([readers[key] for key in keys], found.values(), lambda number: f".{keys[number]}")
        return kind(**{names[key]: value for key, value in zip(keys, values, strict=True)})

    return read


def _typed_dict_reader(kind: Any) -> Reader:
    readers = {key: _reader(_unmarked(hint)) for key, hint in get_type_hints(kind, include_extras=True).items()}
    required = [key for key in readers if key in kind.__required_keys__]

    def read(body: Any) -> dict[str, Any]:
        found = _object(body)
        _require(found, required)
        keys = [key for key in found if key in readers]
        values = _read_each([readers[key] for key in keys], map(found.get, keys), lambda number: f".{keys[number]}")
        return found | dict(zip(keys, values, strict=True))

    return read


def _unmarked(hint: Any) -> Any:
    """The type of a key, without whether the key is required."""
    return get_args(hint)[0] if get_origin(hint) in (Required, NotRequired) else hint


def _object(body: Any) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise _UnfitError("must be an object")
    return body


def _require(found: dict[str, Any], keys: list[str]) -> None:
    if lacking := [key for key in keys if key not in found]:
        raise _UnfitError(f"lacks {lacking[0]!r}")


@cache
def _fields(kind: Any) -> "dict[str, tuple[Field[Any], Any]]":
    """Return each field and its type, by key."""
    hints = get_type_hints(kind, include_extras=True)
    return {each.name: (each, hints[each.name]) for each in fields(kind)}


def _default(each: "Field[Any]") -> Any:
    return each.default if each.default_factory is MISSING else each.default_factory()


def _optional_reader(kind: Any) -> Reader:
    """Read `X | None`; other unions are not used."""
    [inner] = [_reader(each) for each in get_args(kind) if each is not NoneType]
    return lambda body: None if body is None else inner(body)


def _tuple_reader(kind: Any) -> Reader:
    kinds = get_args(kind)
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return _list_reader(kinds[0])
    readers = [_reader(each) for each in kinds]

    def read(body: Any) -> tuple[Any, ...]:
        items = _list(body)
        if len(items) != len(readers):
            raise _UnfitError(f"must have {len(readers)} items")
        return tuple(_read_each(readers, items, lambda number: f"[{number}]"))

    return read


def _list_reader(kind: Any) -> Reader:
    """Read tuples of any length. Nearly all of them hold tokens and their log-probabilities: one look suffices."""
    reader, inner = _reader(kind), _inner(kind)
    bounds = range_of(kind) if inner in _RANGES else None

    def fits(items: list[Any]) -> bool:
        if bounds is None or not items:
            return True
        # min and max may pass over NaN, and the sum of numbers in a range is finite
        return bounds.low <= min(items) and max(items) <= bounds.high and (inner is int or isfinite(sum(items)))

    def read(body: Any) -> tuple[Any, ...]:
        items = _list(body)
        if inner in _PLAIN and {inner}.issuperset(map(type, items)) and fits(items):
            return tuple(items)
        return tuple(_read_each(repeat(reader), items, lambda number: f"[{number}]"))

    return read


def _list(body: Any) -> list[Any]:
    if not isinstance(body, list):
        raise _UnfitError("must be a list")
    return body


def _read_each(readers: Iterable[Reader], items: Iterable[Any], step: Callable[[int], str]) -> list[Any]:
    """Read each item. `step` is what the path to the item of a number has below the path to all of them."""
    values = []
    try:
        for read, item in zip(readers, items, strict=False):
            values.append(read(item))
    except _UnfitError as unfit:
        raise unfit.below(step(len(values))) from None
    return values


def _mapping_reader(kind: Any) -> Reader:
    key_kind, item_kind = get_args(kind)
    reader, read_key = _reader(item_kind), _key_reader(key_kind)

    def read(body: Any) -> dict[Any, Any]:
        found = _object(body)
        keys = list(found)
        values = _read_each(repeat(reader), found.values(), lambda number: f"[{_short(keys[number])}]")
        return {read_key(key): value for key, value in zip(keys, values, strict=True)}

    return read


def _key_reader(kind: Any) -> Callable[[str], Any]:
    if kind is str:
        return lambda key: key

    def read(key: str) -> int:
        if re.fullmatch(WHOLE_KEY, key):
            return int(key)
        raise _UnfitError(f"has the key {_short(key)}; give a whole number of at most 9 digits")

    return read


def _word_reader(kind: Any) -> Reader:
    """Read one of the words of a Literal or an enumeration of texts."""
    words = get_args(kind)
    values = dict(zip(words, words, strict=True)) if words else {each.value: each for each in kind}

    def read(body: Any) -> Any:
        if type(body) is not str or body not in values:
            raise _UnfitError(f"is {_short(body)}; give one of: {', '.join(values)}")
        return values[body]

    return read


def range_of(kind: Any) -> Range:
    """The range of a type of numbers: of `int`, `float`, or what `Annotated` makes of them."""
    return next((each for each in get_args(kind)[1:] if isinstance(each, Range)), _RANGES[_inner(kind)])


def _inner(kind: Any) -> Any:
    """A type without what `Annotated` adds."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _number_reader(kind: Any) -> Reader:
    inner, bounds = _inner(kind), range_of(kind)
    said = f"must be {_in_words(inner, bounds)}"

    def read(body: Any) -> Any:
        if type(body) in (int, float) and bounds.low <= body <= bounds.high and inner(body) == body:
            return inner(body)
        raise _UnfitError(said)

    return read


def _in_words(kind: type, bounds: Range) -> str:
    if kind is int:
        return f"a whole number from {bounds.low:,} to {bounds.high:,}"
    return f"a number from {bounds.low:,g} to {bounds.high:,g}"


_NAMES = {str: "text", bool: "true or false"}


def _plain_reader(kind: Any) -> Reader:
    said = f"must be {_NAMES[kind]}"

    def read(body: Any) -> Any:
        if type(body) is not kind:
            raise _UnfitError(said)
        return body

    return read


def _short(body: Any) -> str:
    return repr(body)[:80]
