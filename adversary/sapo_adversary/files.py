"""Files that the package brings and that commands read and write.

- Results: written whole or not at all.
- TOML files: found by their name in the package or by a path.
- Their tables: checked against the type hints of a dataclass.

An error of the disk or in a file is a LocalError of one line:

    table = load_named("sapo_adversary.data.scenarios", "false-claim", "scenario", "sapo-adversary list", make)
"""

import inspect
import json
import os
import re
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import MISSING, Field, fields
from difflib import get_close_matches
from importlib import resources
from math import isfinite
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from sapo_protocol import LocalError
from sapo_protocol.files import NoSuchFile, expanded, read_bounded, read_json, text_of
from sapo_protocol.toml import parse_toml

MAX_FILE_BYTES = 256 * 1024 * 1024
"""A file of results, at most; the largest that a command writes are about 30 MB."""

_FLAT_LIST = re.compile(r"\[\s+([^][{}\"]+?)\s+\]")
"""A list of numbers, as `json` lays it out."""


def to_json(value: Any) -> str:
    """JSON that a person can read and compare: indented, with lists of numbers on one line each. Raises ValueError for
    a number that JSON does not have, NaN or infinity.
    """
    text = json.dumps(value, indent=1, allow_nan=False)
    return _FLAT_LIST.sub(lambda match: f"[{' '.join(match[1].split())}]", text) + "\n"


def write_whole(path: Path, text: str) -> None:
    """Write a file by one rename, so that whoever reads it, and a run that is resumed, never meets half of one."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_text(text, "utf-8")
        unfinished.replace(path)
    except OSError as error:
        raise LocalError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):  # it is gone where all went well
            unfinished.unlink()


def writable_folder(path: Path) -> Path:
    """The folder, made where it is missing. Raises LocalError if no file can be written in it, and where the folder
    above it is missing: the path may be misspelt.
    """
    if not os.path.lexists(path.parent):
        raise LocalError(f"there is no folder {path.parent}: make it first, or give another folder than {path}")
    try:
        path.mkdir(exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise LocalError(f"cannot write into the folder {path}: {reason}; give another folder") from error


def read_text(path: Path, most: int = MAX_FILE_BYTES) -> str:
    """The text of a regular file of at most `most` bytes. Raises LocalError for anything else."""
    return text_of(read_bounded(path, most, "text file"), path)


def read_results(path: Path, written_by: str) -> dict[str, Any]:
    """The results in a JSON file. Raises LocalError, which names the command that writes them, for anything else."""
    try:
        return read_json(path, MAX_FILE_BYTES, "file of results")
    except NoSuchFile as error:
        raise LocalError(f"there is no {path}; {written_by} writes it") from error
    except LocalError as error:
        raise LocalError(f"{path} is damaged or holds no results ({error}); {written_by} writes them") from error


@contextmanager
def results_in(path: Path, written_by: str) -> Iterator[None]:
    """Within, results that were read from a file are used. Raises LocalError if they are not of the shape."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise LocalError(f"{path} holds other results ({what}); {written_by} writes the right ones") from error


_SUFFIX = ".toml"
_T = TypeVar("_T")


def names_in(package: str) -> list[str]:
    """The files of a package by their names without the ending, sorted."""
    files = (each.name for each in resources.files(package).iterdir())
    return sorted(name.removesuffix(_SUFFIX) for name in files if name.endswith(_SUFFIX))


def load_named(package: str, name: str, what: str, listed_by: str, make: Callable[[str, Mapping[str, Any]], _T]) -> _T:
    """The result of `make` for the name and the table of a packaged file, or of a file given by its path.

    Raises LocalError, which calls the thing `what`, for a file that is none or holds something else. `listed_by` is
    the command that lists the packaged files.
    """
    path = Path(expanded(name))
    if name in names_in(package):
        text = resources.files(package).joinpath(name + _SUFFIX).read_text("utf-8")
    elif path.suffix == _SUFFIX:
        text = read_text(path)
    else:
        close = get_close_matches(name, names_in(package), 1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise LocalError(f"no {what} {name!r}; {hint}`{listed_by}` lists them; a TOML file is given by its path")
    return parsed(name, text, lambda table: make(path.stem, table))


def parsed(name: str, text: str, make: Callable[[Mapping[str, Any]], _T]) -> _T:
    """The result of `make` for the table of a TOML text. Raises LocalError, which calls the text `name`."""
    return make(parse_toml(text, name))


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
    """A hint for a name that is none of `names`."""
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
    """One error for each part of a value that does not fit."""
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
    """Return whether a value fits a type hint that is neither a list nor a table."""
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
