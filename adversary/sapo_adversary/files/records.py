"""Files that a command reads and writes: results are there whole or not at all.

What the disk or a file does not allow is a LocalError.
"""

import json
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sapo_protocol import LocalError
from sapo_protocol.files import NoSuchFile, read_bounded, read_json, text_of

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
    """The folder, made where it is missing. Raises LocalError where no file can be written in it, and where the folder
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
    """Within, results that were read from a file are used. Raises LocalError where they are not of the shape."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise LocalError(f"{path} holds other results ({what}); {written_by} writes the right ones") from error
