"""Waits until the disk has what was written. Before that, a power cut can leave a renamed file empty."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Wait until the disk has a file, or the names in a folder. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_all(folder: Path) -> None:
    """Wait until the disk has a folder and all that is in it. Raises OSError."""
    for path in folder.rglob("*"):
        sync(path)
    sync(folder)
