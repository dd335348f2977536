"""Writes the state of a node to one file, and restores it. The node may run while its state is copied.

A backup holds the database as of one moment, the checkpoints, the best weights, and the files of rows from which the
tasks of the swarm are built. It never holds the key. It also lacks the file by which a node recognises its own state
(`storage/location.py`). So a node on a restored state detects the copy, and listens for two epochs before it publishes:
its key may have signed messages since the backup.

`restore_backup` accepts only files and folders of the expected names and sizes. The database must be undamaged and must
belong to the given key and swarm.
"""

import os
import re
import shutil
import sqlite3
import stat
import tarfile
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import BinaryIO

from sapo_node.app.state import StateFolder, read_database
from sapo_node.observability.history import History
from sapo_node.storage.database import Database, StateError, read_only_uri
from sapo_node.storage.files import for_owner_alone, made_folder, sync, sync_all, work_folder
from sapo_protocol import LocalError
from sapo_protocol.files import NoSuchFile, open_regular, sha256_of
from sapo_protocol.limits import MAX_TASKS

RESTORING = "restore"
"""The kind of the work folder in a state folder to which a state is being restored."""
_ATTEMPTS = 3
"""Attempts to copy the checkpoints: a running node may remove one while it is copied."""

_WEIGHTS = ("meta.json", "weights.safetensors")
_FILES = {"step": (*_WEIGHTS, "optimizer.safetensors"), "best": _WEIGHTS}
"""The files of a checkpoint and of best weights, by the kind of folder, which is followed by its step."""
_ROWS = "files"
"""The folder of the files of rows in a backup."""
_FOLDER = re.compile(r"checkpoints(/(step|best)-\d{8,19})?", re.ASCII)
_NAMES = "|".join(rf"{kind}-\d{{8,19}}/({'|'.join(map(re.escape, names))})" for kind, names in _FILES.items())
_FILE = re.compile(rf"node\.sqlite|{_ROWS}/[0-9a-f]{{64}}\.jsonl|checkpoints/({_NAMES})", re.ASCII)

_MAX_ENTRIES = MAX_TASKS + 64
"""Files and folders in one backup, at most. With two checkpoints and best weights a backup has 13, and one more for
each file of rows."""
_MAX_META, _MAX_FILE = 2**16, 2**40
"""Bytes of a checkpoint's meta.json, and of any other file, at most."""
_PIECE = 2**20
"""Bytes that are copied at a time."""


def write_backup(folder: StateFolder, output: Path, rows: Iterable[Path] = ()) -> None:
    """Write the state, and those of the files of `rows` that exist, to a new file that only its owner can read.

    Raises StateError if the database is damaged, and LocalError if the file exists or cannot be written.
    """
    if os.path.lexists(output):
        raise LocalError(f"{output} exists; name a new file")
    with closing(read_database(folder)) as database:
        database.check()
    try:
        with for_owner_alone(), work_folder(output.parent, "backup") as work:
            copy = StateFolder(work)
            _copy_database(folder.database, copy.database)
            _copy_checkpoints(folder.checkpoints, copy.checkpoints)
            with tarfile.open(copy.path / "state.tar", "w") as archive:
                for part in (copy.database, copy.checkpoints):
                    archive.add(part, arcname=part.name)
                for path in rows:
                    _add_rows(archive, path)
            sync(copy.path / "state.tar")
            (copy.path / "state.tar").rename(output)
            sync(output.parent)
    except (OSError, sqlite3.Error, tarfile.TarError) as error:
        raise LocalError(f"cannot write the backup {output}: {_reason(error)}") from error


def restore_backup(file: Path, folder: StateFolder, task_files: Path, *, peer_id: str, network_id: str) -> None:
    """Restore the backup of this peer in this network to `folder`, and its files of rows to the folder `task_files`.

    Raises LocalError if the file is no such backup, or if the folder holds a state already.
    """
    with open_regular(file, "backup") as archive:
        try:
            if any(folder.path.glob(f"{folder.database.name}*")) or any(folder.checkpoints.glob("*")):
                raise LocalError(f"{folder.path} holds a state, which restore does not overwrite; move it away first")
            with for_owner_alone(), made_folder(folder.path):
                folder.path.chmod(stat.S_IRWXU)  # it may have been there, open to others
                with work_folder(folder.path, RESTORING) as work:
                    copy = StateFolder(work)
                    _extract(archive, copy)
                    _require_owner(copy, file, peer_id, network_id)
                    _require_hashes(copy)
                    sync_all(copy.path)
                    _move_rows(copy.path / _ROWS, task_files)
                    copy.checkpoints.rename(folder.checkpoints)
                    copy.database.rename(folder.database)
                    sync(folder.path)
        except _NoBackup as error:
            raise LocalError(f"{file} is no backup of a node: {error}") from error
        except OSError as error:
            raise LocalError(
                f"cannot restore {file} to {folder.path}: {_reason(error)}; choose another --state, or free some space"
            ) from error


def _reason(error: Exception) -> str:
    """Return the system's error text without its path, which may be that of a temporary file."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _copy_database(source: Path, target: Path) -> None:
    """Copy the database as of one moment, although a running node may write to it."""
    with closing(sqlite3.connect(read_only_uri(source), uri=True)) as live, closing(sqlite3.connect(target)) as copy:
        live.backup(copy)


def _copy_checkpoints(source: Path, target: Path) -> None:
    """Copy the complete checkpoints and best weights. A folder that is incomplete after _ATTEMPTS copies is damaged
    and left out. Raises LocalError if `source` is a link: it may lead to files of another program.
    """
    if source.is_symlink():
        raise LocalError(f"{source} is a link, which no backup follows: put the original in its place")
    for _ in range(_ATTEMPTS):
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        found = [
            _copy_folder(each, target / each.name, names)
            for kind, names in _FILES.items()
            for each in sorted(source.glob(f"{kind}-*"))
        ]
        if all(found):
            return


def _copy_folder(source: Path, target: Path, names: Sequence[str]) -> bool:
    """Return whether the folder had all of its files."""
    target.mkdir()
    try:
        for name in names:
            _copy_file(source / name, target / name)
    except NoSuchFile:
        shutil.rmtree(target)
        return False
    return True


def _copy_file(source: Path, target: Path) -> None:
    """Copy a file of a checkpoint. Raises LocalError for a link, also in place of its folder, and for a device."""
    with open_regular(source, "file of a checkpoint", follow=False) as file, target.open("xb") as copy:
        shutil.copyfileobj(file, copy, _PIECE)


def _add_rows(archive: tarfile.TarFile, path: Path) -> None:
    """Add a file of rows to a backup, unless the node lacks it. No node changes such a file, so it is not copied
    first. Raises LocalError for a link or a device.
    """
    with suppress(NoSuchFile), open_regular(path, "file of rows", follow=False) as file:
        archive.addfile(archive.gettarinfo(arcname=f"{_ROWS}/{path.name}", fileobj=file), file)


def _move_rows(source: Path, target: Path) -> None:
    """Move the files of rows of a backup, if it has any, to the node's folder of such files."""
    if source.is_dir():
        target.mkdir(exist_ok=True)
        for path in source.iterdir():
            path.replace(target / path.name)
        sync(target)


class _NoBackup(Exception):
    """The archive is not a backup. The message is the reason."""


def _require_owner(copy: StateFolder, file: Path, peer_id: str, network_id: str) -> None:
    """Raises LocalError if the database is damaged, or belongs to another key or swarm.

    A database without an owner passes: its node stopped before it published anything.
    """
    try:
        with closing(Database(copy.database, (), read_only=True)) as database:
            database.check()
            session = History(database).session()
    except StateError as error:
        raise LocalError(
            f"the database in {file} is damaged, or another version of sapo-node wrote it; use another backup"
        ) from error
    owner = session.get("peer_id", peer_id), session.get("network_id", network_id)
    if owner != (peer_id, network_id):
        raise LocalError(
            f"{file} is the state of {owner[0]} in the swarm {str(owner[1])[:16]}, and this is {peer_id} in the swarm "
            f"{network_id[:16]}; give the key and the swarm of that state, with --key and --swarm"
        )


def _require_hashes(copy: StateFolder) -> None:
    """Raise _NoBackup if a file of rows lacks the SHA-256 that is its name."""
    for path in copy.path.glob(f"{_ROWS}/*"):
        if sha256_of(path, "file of rows").hex() != path.stem:
            raise _NoBackup(f"{_ROWS}/{path.name} is damaged: its SHA-256 is not its name")


def _extract(archive: BinaryIO, copy: StateFolder) -> None:
    """Write the files of a backup to a new folder. Raises _NoBackup for an entry that is not part of a state."""
    names: set[str] = set()
    try:
        with tarfile.open(fileobj=archive, mode="r:") as entries:
            for entry in entries:
                _require_part(entry)
                if entry.name in names or len(names) == _MAX_ENTRIES:
                    raise _NoBackup(f"it holds {entry.name} twice, or more than {_MAX_ENTRIES} entries")
                names.add(entry.name)
                entries.extract(entry, copy.path, set_attrs=False, filter="data")
    except (tarfile.TarError, ValueError) as error:
        raise _NoBackup(str(error)) from error
    if not copy.database.is_file() or not copy.checkpoints.is_dir():
        raise _NoBackup(f"it lacks {copy.database.name} or {copy.checkpoints.name}")


def _require_part(entry: tarfile.TarInfo) -> None:
    """Raise _NoBackup unless an entry is a file or folder of a state, of a size that such a file may have."""
    pattern = _FOLDER if entry.isdir() else _FILE
    if not (entry.isdir() or entry.isfile()) or entry.issparse() or not pattern.fullmatch(entry.name):
        raise _NoBackup(f"it holds {entry.name!r}, which is not part of a state")
    if not 0 <= entry.size <= (_MAX_META if entry.name.endswith(".json") else _MAX_FILE):
        raise _NoBackup(f"{entry.name} has {entry.size:,} bytes")
