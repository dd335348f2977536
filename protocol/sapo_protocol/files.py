"""Opens files that a person names. Refuses everything but regular files, and reads at most a limit.

Opening a pipe can block, and reading a device may never end. `open_regular` therefore opens without blocking and
then checks the type of what it opened.
"""

import os
import stat
from pathlib import Path
from typing import BinaryIO

from .errors import LocalError

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class NoSuchFile(LocalError):
    """No file exists at the path."""


def open_regular(path: Path, what: str) -> BinaryIO:
    """Open a regular file for reading; `what` names it in errors, for example "key file".

    Raises NoSuchFile if no file exists there, and LocalError if it is not a regular file or cannot be opened.
    """
    try:
        descriptor = os.open(path, _FLAGS)
    except FileNotFoundError as error:
        raise NoSuchFile(f"there is no {what} at {path}") from error
    except PermissionError as error:
        raise LocalError(f"this user may not read the {what} {path}: change its owner or its mode") from error
    except OSError as error:
        raise LocalError(f"cannot read the {what} {path}: {error.strerror}") from error
    except ValueError as error:
        raise LocalError(f"{str(path)!r} is not a path: it holds a zero byte") from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
        raise LocalError(f"{path} is {kind}, not a {what}: give the path of a file")
    return os.fdopen(descriptor, "rb")


def read_bounded(path: Path, limit: int, what: str) -> bytes:
    """Return the content of a regular file of at most `limit` bytes. Raises NoSuchFile or LocalError."""
    with open_regular(path, what) as file:
        try:
            data = file.read(limit + 1)
        except OSError as error:
            raise LocalError(f"cannot read the {what} {path}: {error.strerror}") from error
    if len(data) > limit:
        raise LocalError(f"{path} is larger than {limit:,} bytes, so it is not a {what}: give another file")
    return data
