"""Tables of TOML files against the type hints of the dataclasses that are made from them.

A table that does not fit is a LocalError, which names the key, the value and what belongs there.
"""

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from difflib import get_close_matches
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from sapo_protocol import LocalError

_T = TypeVar("_T")

_NAMES = {
    bool: "true or false",
    int: "a whole number, 0 or more",
    float: "a number, 0 or more",
    str: "a text",
    tuple: "a list",
    Sequence: "a list",
    Mapping: "a table",
    dict: "a table",
}


def suggestion(name: str, names: Collection[str]) -> str:
    """What to give in place of a name that is none of `names`."""
    close = get_close_matches(name, names, 1)
    return f"did you mean {close[0]}?" if close else f"give one of {', '.join(names)}"


def made(kind: type[_T], table: object, what: str) -> _T:
    """The dataclass `kind` made from a table, which errors call `what`."""
    if not isinstance(table, Mapping):
        raise LocalError(f"{what} must be a table, not {_shown(table)}")
    names = [each.name for each in fields(kind)]  # type: ignore[arg-type]
    hints = get_type_hints(kind)
    for name, value in table.items():
        if name not in names:
            raise LocalError(f"{what} has no {name!r}; {suggestion(name, names)}")
        require_type(value, hints[name], f"{name} of {what}")
    if missing := [each.name for each in fields(kind) if _is_needed(each) and each.name not in table]:  # type: ignore[arg-type]
        raise LocalError(f"{what} lacks {', '.join(missing)}")
    return kind(**table)


def _is_needed(field: Field[Any]) -> bool:
    return field.init and field.default is MISSING and field.default_factory is MISSING


def require_options(function: Callable[..., Any], options: Mapping[str, Any], what: str) -> None:
    """Raise LocalError unless the options are keywords of the function, with values of its annotations."""
    try:
        inspect.signature(function).bind(None, **options)
    except TypeError as error:
        raise LocalError(f"options of {what}: {error}") from error
    hints = get_type_hints(function.__init__ if inspect.isclass(function) else function)
    for name, value in options.items():
        require_type(value, hints.get(name, Any), f"{name} of {what}")


def require_type(value: object, wanted: Any, what: str) -> None:
    """Raise LocalError for a value that does not fit a type hint; of a list or a table it names the part that does not.

    Numbers are finite and not negative; lists stand for tuples.
    """
    for misfit in _misfits(value, wanted, what):
        raise LocalError(misfit)


def _misfits(value: object, wanted: Any, what: str) -> Iterator[str]:
    """What must be different, part by part, so that a value fits."""
    origin, parts = get_origin(wanted), get_args(wanted)
    if origin in (tuple, Sequence) and isinstance(value, list | tuple):
        for number, each in enumerate(value, start=1):
            yield from _misfits(each, parts[0], f"value {number} in {what}")
    elif origin in (Mapping, dict) and isinstance(value, Mapping):
        for name, each in value.items():
            yield from _misfits(each, parts[1], f"{name} in {what}")
    elif not _fits(value, wanted):
        yield f"{what} must be {_described(wanted)}, not {_shown(value)}"


def _fits(value: object, wanted: Any) -> bool:
    """Whether a value that is neither the list nor the table that a type hint wants fits it."""
    origin, parts = get_origin(wanted), get_args(wanted)
    if origin in (Union, UnionType):
        return not all(any(_misfits(value, part, "")) for part in parts)
    if origin is Literal:
        return isinstance(value, str) and value in parts
    if wanted in (int, float):
        kinds = int if wanted is int else (int, float)
        return isinstance(value, kinds) and not isinstance(value, bool) and isfinite(value) and value >= 0
    return wanted is Any or (origin is None and isinstance(value, wanted))


def _described(wanted: Any) -> str:
    origin, parts = get_origin(wanted), get_args(wanted)
    if origin in (Union, UnionType):
        return " or ".join(_described(part) for part in parts if part is not NoneType)
    if origin is Literal:
        return " or ".join(map(repr, parts))
    return _NAMES.get(origin or wanted, "something else")


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return "a table"
    return "a list" if isinstance(value, list | tuple) else repr(value)[:80]
