"""TOML files of the package that users name, and their own by path."""

import tomllib
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from sapo_protocol import LocalError

_SUFFIX = ".toml"
_T = TypeVar("_T")


def names_in(package: str) -> list[str]:
    """The files of a package by their names without the ending, sorted."""
    files = (each.name for each in resources.files(package).iterdir())
    return sorted(name.removesuffix(_SUFFIX) for name in files if name.endswith(_SUFFIX))


def load_named(package: str, name: str, what: str, make: Callable[[str, Mapping[str, Any]], _T]) -> _T:
    """What `make` makes of the name and the table of a packaged file, or of one by its path.

    Raises LocalError, which calls the thing `what`, for a file that is none or lacks something.
    """
    path = Path(name)
    if name in names_in(package):
        text = resources.files(package).joinpath(name + _SUFFIX).read_text("utf-8")
    elif path.suffix == _SUFFIX and path.is_file():
        text = path.read_text("utf-8")
    else:
        raise LocalError(f"no {what} {name}; give one of {', '.join(names_in(package))}, or a TOML file")
    try:
        return make(path.stem, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise LocalError(f"{name} is not valid TOML: {error}") from error
    except KeyError as error:
        raise LocalError(f"{name} lacks {error}") from error
