"""The folders of the user who runs this process: where states and models lie by default.

A container may run under a user id without a home folder: HOME is unset, and passwd has no entry. Nothing is then the
default, and a command that needs such a folder says so in one line. So it does if the home folder does not exist.
"""

import os
from collections.abc import Callable
from pathlib import Path

import platformdirs

from sapo_protocol import LocalError

_PROGRAM = "sapo-node"


def default_state() -> str:
    """Return the folder under which states lie by default; empty if this user has no home folder."""
    found = _found(platformdirs.user_state_dir)
    return str(found) if found else ""


def cache_folder() -> Path:
    """Return the folder for what can be made again, such as fetched models. Raises LocalError if there is none."""
    found = _found(platformdirs.user_cache_dir)
    if found is None:
        raise LocalError(
            "this user has no home folder, so there is no folder for models: set HOME or XDG_CACHE_HOME to a folder "
            "that this user may write to"
        )
    return found


def _found(find: Callable[[str], str]) -> Path | None:
    try:
        found = Path(find(_PROGRAM))
    except RuntimeError:
        return None
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.expanduser raises RuntimeError
    # passwd names /nonexistent for users such as `nobody`. An older platformdirs returns `~/...`.
    is_usable = found.is_absolute() and (os.path.isdir(home) or not found.is_relative_to(home))  # noqa: PTH112
    return found if is_usable else None
