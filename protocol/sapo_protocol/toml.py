"""TOML from an untrusted author: reads it within limits, and writes only printable characters."""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import LocalError
from .files import read_bounded, text_of
from .limits import MAX_UINT
from .printable import excerpt, is_printable

_MAX_LEVELS = 32
"""Levels of nested tables and lists. No file of this project has more than 8."""
_MAX_DOTS = 1_000
"""Dots in one line. A key never spans lines, and tomllib needs half a minute for one key of 32,000 parts."""
_MIN_INTEGER = -(2**63)
_LINE = re.compile(r"\(at line (\d+), column \d+\)")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


def read_toml(path: Path, limit: int, what: str) -> dict[str, Any]:
    """Return the tables of a TOML file of at most `limit` bytes; `what` names the file in errors.

    Raises NoSuchFile if no file exists at `path`, and LocalError if it cannot be read.
    """
    return parse_toml(text_of(read_bounded(path, limit, what), path), str(path))


def parse_toml(text: str, source: str) -> dict[str, Any]:
    """Return the tables that TOML `text` describes; `source` names it in errors.

    Raises LocalError for invalid TOML, deep nesting, and integers beyond 64 bits.
    """
    if any(line.count(".") > _MAX_DOTS for line in text.split("\n")):
        raise LocalError(f"{source} is not valid TOML for sapo-node: a line has more than {_MAX_DOTS:,} dots")
    try:
        table = tomllib.loads(text)
    except RecursionError as error:
        raise LocalError(_too_deep(source)) from error
    except ValueError as error:  # TOMLDecodeError, and Python's own error for an integer of thousands of digits
        raise LocalError(f"{source} is not valid TOML: {_explained(error, text)}") from error
    _require_bounds(table, source)
    return table


def _explained(error: ValueError, text: str) -> str:
    """Return tomllib's words with the line that it means. They name neither the line's key nor its section."""
    place = _LINE.search(str(error))
    lines = text.rstrip().split("\n")
    number = int(place[1]) if place else len(lines)
    line = excerpt(lines[number - 1])
    if "Cannot overwrite" in str(error) or "Cannot declare" in str(error):
        return f"line {number} sets again what was set before: {line}"
    return f"{error}: {line}"


def _require_bounds(table: dict[str, Any], source: str) -> None:
    """Raise LocalError for nesting and integers that later code could not process."""
    waiting: list[tuple[Any, int]] = [(table, 1)]
    while waiting:
        value, level = waiting.pop()
        if isinstance(value, dict | list):
            if level > _MAX_LEVELS:
                raise LocalError(_too_deep(source))
            waiting += [(each, level + 1) for each in (value.values() if isinstance(value, dict) else value)]
        elif isinstance(value, int) and not _MIN_INTEGER <= value <= MAX_UINT:
            raise LocalError(f"{source} is not valid TOML for sapo-node: an integer has more than 64 bits")


def _too_deep(source: str) -> str:
    return f"{source} is not valid TOML for sapo-node: it is nested deeper than {_MAX_LEVELS} levels"


def toml_value(value: object) -> str:
    """Return a value as TOML in printable characters, which `parse_toml` reads back to the same value.

    Raises LocalError for bytes, which TOML cannot express.
    """
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {toml_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if isinstance(value, bytes):
        raise LocalError("this manifest holds byte strings, which TOML cannot express")
    # JSON strings, booleans and numbers are valid TOML, except for the characters that are escaped here.
    text = json.dumps(value, ensure_ascii=False)
    return text if is_printable(text) else "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    return character if is_printable(character) else f"\\U{ord(character):08x}"


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else toml_value(key)
