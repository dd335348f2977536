"""The folder of models that this node has converted. A folder with a model's name in it is complete."""

import functools
from collections.abc import Callable
from pathlib import Path

import platformdirs

from sapo_node.storage.sync import sync
from sapo_node.storage.work_folder import work_folder
from sapo_protocol.files import sha256_of


def place_of(name: str) -> Path:
    """Return the folder of a model. It exists if the model has been converted."""
    return Path(platformdirs.user_cache_dir("sapo-node")) / "models" / name


def put(target: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill an empty folder, and then rename it to `target`. If `write` raises, no folder remains. What a
    process that was killed has left is removed.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with work_folder(target.parent, "model") as work:
        made = work / target.name
        made.mkdir()
        write(made)
        for path in made.iterdir():
            sync(path)
        try:
            made.rename(target)
        except OSError:
            # Another process may have put the same model there first.
            if not target.is_dir():
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
