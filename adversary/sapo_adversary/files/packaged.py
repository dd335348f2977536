"""TOML files of the package that users name, and their own by path."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from sapo_adversary.files.records import read_text
from sapo_protocol import LocalError
from sapo_protocol.files import expanded
from sapo_protocol.toml import parse_toml

_SUFFIX = ".toml"
_T = TypeVar("_T")


def names_in(package: str) -> list[str]:
    """The files of a package by their names without the ending, sorted."""
    files = (each.name for each in resources.files(package).iterdir())
    return sorted(name.removesuffix(_SUFFIX) for name in files if name.endswith(_SUFFIX))


def load_named(package: str, name: str, what: str, listed_by: str, make: Callable[[str, Mapping[str, Any]], _T]) -> _T:
    """What `make` makes of the name and the table of a packaged file, or of one by its path.

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
    """What `make` makes of the table of a TOML text. Raises LocalError, which calls the text `name`."""
    return make(parse_toml(text, name))
