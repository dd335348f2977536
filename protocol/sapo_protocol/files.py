"""Opens files that others may have written. Refuses everything but regular files, and reads at most a limit.

Opening a pipe can block, and reading a device may never end. `open_regular` therefore opens without blocking and
then checks the type of what it opened. Every error is a LocalError: nothing else in this project opens such a file.
"""

import codecs
import hashlib
import json
import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import Any, NoReturn

from .errors import LocalError
from .printable import line_of

_MARKS = {
    codecs.BOM_UTF8: "UTF-8",
    codecs.BOM_UTF32_LE: "UTF-32",  # it begins as the mark of UTF-16 does
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class NoSuchFile(LocalError):
    """No file exists at the path."""


def expanded(path: str) -> str:
    """Return a path as a person wrote it. `~` or `~user` at its start becomes the home folder, where no shell did that.

    Raises LocalError if there is no such home folder.
    """
    if not path.startswith("~"):
        return path
    found = os.path.expanduser(path)  # noqa: PTH111 - Path.expanduser raises RuntimeError
    name = path.partition("/")[0]
    if not found.startswith("/") or (name == "~" and os.environ.get("HOME") == ""):
        raise LocalError(f"{path}: there is no home folder for {name}; write the whole path, or ./{path} for a name")
    return found


def open_regular(path: Path, what: str, *, follow: bool = True) -> BufferedReader:
    """Open a regular file for reading; `what` names it in errors, for example "key file".

    With `follow` false, neither the file nor its folder may be a link. Raises NoSuchFile if no file exists there, and
    LocalError if it is not a regular file or cannot be opened.
    """
    try:
        descriptor = os.open(path, _FLAGS) if follow else _open_without_links(path)
    except FileNotFoundError as error:
        raise NoSuchFile(f"there is no {what} at {path}") from error
    except PermissionError as error:
        raise LocalError(f"this user may not read the {what} {path}: change its owner or its mode") from error
    except OSError as error:
        if not follow and (link := next((each for each in (path.parent, path) if each.is_symlink()), None)):
            raise LocalError(f"{link} is a link, not a {what} or its folder: put the original there") from error
        raise LocalError(f"cannot read the {what} {path}: {error.strerror}") from error
    except ValueError as error:
        raise LocalError(f"{str(path)!r} is not a path: it holds a zero byte") from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
        raise LocalError(f"{path} is {kind}, not a {what}: give the path of a file")
    return os.fdopen(descriptor, "rb")


def _open_without_links(path: Path) -> int:
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return os.open(path.name, _FLAGS | os.O_NOFOLLOW, dir_fd=folder)
    finally:
        os.close(folder)


def size_of(path: Path, what: str) -> int:
    """Return the size of a regular file in bytes. Raises NoSuchFile or LocalError."""
    with open_regular(path, what) as file:
        return os.fstat(file.fileno()).st_size


def sha256_of(path: Path, what: str) -> bytes:
    """Return the SHA-256 of a regular file. Raises NoSuchFile or LocalError."""
    with open_regular(path, what) as file:
        try:
            return hashlib.file_digest(file, "sha256").digest()
        except OSError as error:
            raise LocalError(f"cannot read the {what} {path}: {error.strerror}") from error


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


def text_of(data: bytes, path: Path) -> str:
    """Return the text of a file as UTF-8. Raises LocalError, which names what an editor wrote instead."""
    for mark, encoding in _MARKS.items():
        if data.startswith(mark):
            raise LocalError(
                f"{path} begins with the byte order mark of {encoding}: save it as UTF-8 without such a mark"
            )
    if b"\0" in data:
        line = data[: data.index(b"\0")].count(b"\n") + 1
        raise LocalError(f"{path} holds a zero byte in line {line}, as UTF-16 text does: save it as UTF-8")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise LocalError(f"{path} is not UTF-8 text: see byte {error.start}, in line {line}") from error


def read_json(path: Path, limit: int, what: str) -> dict[str, Any]:
    """Return the object in a JSON file of at most `limit` bytes. NaN and infinities are no JSON.

    Raises NoSuchFile or LocalError.
    """
    text = text_of(read_bounded(path, limit, what), path)
    try:
        value = json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise LocalError(f"{path} is not plain JSON ({line_of(error)}): give another file") from error
    if not isinstance(value, dict):
        raise LocalError(f"{path} is not a JSON object: give another file")
    return value


def refuse_constant(name: str) -> NoReturn:
    """For `json.loads` as its `parse_constant`: Python else takes NaN and infinities, which are no JSON.

    Raises ValueError.
    """
    raise ValueError(f"it holds {name}")
