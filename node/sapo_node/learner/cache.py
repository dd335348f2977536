"""The folder of models that this node has converted. A folder with a model's name in it is complete."""

import errno
import functools
from collections.abc import Callable
from pathlib import Path

from sapo_node.storage.user_folders import cache_folder
from sapo_node.storage.work_folder import new_folder
from sapo_protocol.files import sha256_of


def place_of(name: str) -> Path:
    """Return the folder of a model. It exists if the model has been converted. Raises LocalError if this user has no
    folder for models.
    """
    return cache_folder() / "models" / name


def put(target: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill an empty folder, and then rename it to `target`. If `write` raises, no folder remains. What a
    process that was killed has left is removed.
    """
    try:
        with new_folder(target, "model") as made:
            write(made)
    except OSError as error:
        # Another process may have put the same model there first.
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not target.is_dir():
            raise


def digest(file: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal. Reads the file only once, unless it changes. Raises OSError or
    LocalError.
    """
    found = file.stat()
    return _digest(file, found.st_ino, found.st_size, found.st_mtime_ns)


@functools.lru_cache(maxsize=16)
def _digest(file: Path, *version: int) -> str:
    """`version` makes a changed file another key of the cache."""
    del version
    return sha256_of(file, "GGUF file").hex()
