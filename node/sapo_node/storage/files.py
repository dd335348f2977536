"""Files and folders that a crash or a power cut cannot leave half-written, and that other users cannot read.

A work folder holds a result until it is complete. Then the process renames it to its place. The process holds a lock on
its work folder while it lives. So a work folder with content and without a lock is left from a killed process. The next
process removes it.
"""

import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sapo_protocol.errors import LocalError

OTHERS = stat.S_IRWXG | stat.S_IRWXO
_WRITE = stat.S_IWGRP | stat.S_IWOTH


def sync(path: Path) -> None:
    """Wait until the disk has a file, or the names in a folder. Raises OSError.

    Without this, a power cut can leave a renamed file empty.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_all(folder: Path) -> None:
    """Wait until the disk has a folder with all its content. Raises OSError."""
    for path in folder.rglob("*"):
        sync(path)
    sync(folder)


def write_private(path: Path, content: bytes, what: str) -> None:
    """Write or replace a file with mode 0600. A reader sees the old content or the new one, even after a power cut.

    `what` names the file in errors. Raises LocalError.
    """
    new = path.with_name(f"{path.name}.new")
    try:
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        sync(new)
        new.replace(path)
        sync(path.parent)
    except OSError as error:
        raise LocalError(f"cannot write the {what} {path}: {error.strerror}; free disk space") from error


def deny_writing() -> None:
    """From now on only the owner can write the files that this process and its children make."""
    os.umask(os.umask(_WRITE) | _WRITE)


@contextmanager
def for_owner_alone() -> Iterator[None]:
    """Within this context only the owner can read the files that this process and its children make.

    The umask belongs to the whole process: use this only while it writes no file that others may read.
    """
    before = os.umask(OTHERS)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def new_folder(target: Path, kind: str) -> Iterator[Path]:
    """Make an empty folder for the block to fill, and rename it to `target`. If the block fails, no folder remains.

    Raises OSError, also if there is something at `target` by then, unless that is an empty folder.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with work_folder(target.parent, kind) as work:
        made = work / target.name
        made.mkdir()
        yield made
        for path in made.iterdir():
            sync(path)
        made.rename(target)


@contextmanager
def made_folder(folder: Path) -> Iterator[None]:
    """Make a folder, and those above it. If the block fails, those that were made here are removed, unless there is
    something in them. Raises OSError.
    """
    missing = [each for each in (folder, *folder.parents) if not os.path.lexists(each)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for each in missing:
            with suppress(OSError):
                each.rmdir()
        raise


@contextmanager
def work_folder(parent: Path, kind: str) -> Iterator[Path]:
    """Make a folder in `parent` that only its owner can read, and remove it at the end. Raises OSError.

    Before that, remove what killed processes have left of such folders.
    """
    for left in abandoned(parent, kind):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=parent, prefix=_prefix(kind)) as name:
        descriptor = _open(Path(name))
        try:
            _lock(descriptor)
            yield Path(name)
        finally:
            os.close(descriptor)


def abandoned(parent: Path, kind: str) -> list[Path]:
    """Return the folders that killed processes of this user have left in a folder, none if it cannot be read.

    An empty folder counts as one in use: its process may be about to lock it.
    """
    name = re.compile(rf"{re.escape(_prefix(kind))}\w{{8}}", re.ASCII)
    try:
        found = [path for path in parent.iterdir() if name.fullmatch(path.name)]
    except OSError:
        return []
    return [path for path in found if _is_abandoned(path)]


def _prefix(kind: str) -> str:
    return f".sapo-{kind}-"


def _is_abandoned(folder: Path) -> bool:
    try:
        descriptor = _open(folder)
    except OSError:  # a link, a file, or a folder of another user
        return False
    try:
        # Of an empty folder the lock is not even tried: its process may want it at this moment.
        return os.fstat(descriptor).st_uid == os.geteuid() and any(folder.iterdir()) and _lock(descriptor)
    finally:
        os.close(descriptor)


def _open(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _lock(descriptor: int) -> bool:
    """Return whether this process holds the lock. Some file systems of a network lock no folders."""
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False
