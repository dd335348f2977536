"""The folder of models that this node has converted. A folder with a model's name in it is complete."""

import fcntl
import functools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import platformdirs

from sapo_node.storage.sync import sync
from sapo_protocol.files import sha256_of

_UNFINISHED = ".unfinished-"


def place_of(name: str) -> Path:
    """Return the folder of a model. It exists if the model has been converted."""
    return Path(platformdirs.user_cache_dir("sapo-node")) / "models" / name


def put(target: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill an empty folder, and then rename it to `target`. If `write` raises, no folder remains. What a
    process that was killed has left is removed.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with _writing(target.parent), tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=target.parent) as work:
        made = Path(work) / target.name
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


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Hold a lock on the folder that all its writers share. The first writer removes what earlier ones have left."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for left in folder.glob(f"{_UNFINISHED}*"):
                shutil.rmtree(left, ignore_errors=True)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


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
