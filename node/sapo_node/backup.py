"""A state in one file, of a node that may be running: its database as of one moment, its checkpoints, never the key.

What tells a state from its copies (`place.py`) is left out, so that a restored one is noticed as such and listens for
two epochs before it publishes: it cannot know what its key signed since.
"""

import shutil
import sqlite3
import tarfile
import tempfile
from contextlib import closing
from pathlib import Path, PurePosixPath

from sapo_node.database import Database, StateError
from sapo_node.state import StateFolder
from sapo_protocol import LocalError

_ATTEMPTS = 3
"""A running node removes a checkpoint now and then, maybe while it is being read."""


def write_backup(folder: StateFolder, output: Path) -> None:
    """Write the state to a new file. Raises LocalError where that fails or the file is there."""
    if output.exists():
        raise LocalError(f"{output} exists: name a new file")
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=".backup-") as name:
        copy = StateFolder(Path(name))
        try:
            _copy_database(folder.database, copy.database)
            _copy_checkpoints(folder.checkpoints, copy.checkpoints)
            with tarfile.open(copy.path / "state.tar", "w") as archive:
                for part in (copy.database, copy.checkpoints):
                    archive.add(part, arcname=part.name)
            (copy.path / "state.tar").rename(output)
        except (OSError, sqlite3.Error, tarfile.TarError) as error:
            raise LocalError(f"cannot write the backup {output}: {error}") from error


def restore_backup(file: Path, folder: StateFolder) -> None:
    """Put a backup where there is no state. Raises LocalError for anything but a backup, or where a state is."""
    if folder.database.exists():
        raise LocalError(f"there is a state at {folder.path}: move it away first, nothing is overwritten")
    folder.path.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.path, prefix=".restore-") as name:
        copy = StateFolder(Path(name))
        try:
            with tarfile.open(file, "r:") as archive:
                _require_parts(archive, file, copy)
                archive.extractall(copy.path, filter="data")
            Database(copy.database, ()).close()  # looks through it
            copy.checkpoints.rename(folder.checkpoints)
            copy.database.rename(folder.database)
        except StateError as error:
            raise LocalError(f"the database in {file} cannot be used ({error}): take another backup") from error
        except (OSError, sqlite3.Error, tarfile.TarError) as error:
            raise LocalError(f"cannot restore {file}: {error}") from error


def _copy_database(source: Path, target: Path) -> None:
    """As of one moment, whatever a running node writes meanwhile."""
    with closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as live, closing(sqlite3.connect(target)) as copy:
        live.backup(copy)


def _copy_checkpoints(source: Path, target: Path) -> None:
    """The finished ones."""
    for attempt in range(_ATTEMPTS):
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        try:
            for checkpoint in sorted(source.glob("step-*")):
                shutil.copytree(checkpoint, target / checkpoint.name)
        except (OSError, shutil.Error):
            if attempt == _ATTEMPTS - 1:
                raise
        else:
            return


def _require_parts(archive: tarfile.TarFile, file: Path, copy: StateFolder) -> None:
    """Nothing but files and folders of a state, with its database among them."""
    members = archive.getmembers()
    parts = {PurePosixPath(each.name).parts[:1] for each in members}
    wanted = {(copy.database.name,), (copy.checkpoints.name,)}
    if not all(each.isfile() or each.isdir() for each in members) or parts != wanted:
        raise LocalError(f"{file} is no backup of a node")
