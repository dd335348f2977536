"""The state folder of a node, `<state>/<network>/<peer id>`. The node's process locks it.

`return_to_clock` repairs a state whose epoch is ahead of the clock: the clock was wrong, and the node believed it. Such
a node publishes rollouts that no peer accepts, and refuses those of its peers, until the clock reaches its epoch. After
the repair it listens for two epochs and then goes on. Counters that it used in later epochs stay used. If the state no
longer knows all of them (`counters.KEPT_EPOCHS`), it is not repaired.
"""

import fcntl
import os
import random
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sapo_node.app import trained_model
from sapo_node.groups import book
from sapo_node.ingest import validator
from sapo_node.ingest.validator import ReplayWindow
from sapo_node.net import address_book
from sapo_node.observability import history
from sapo_node.sampling import memory
from sapo_node.storage import counters
from sapo_node.storage.clock_guard import JUMP_EPOCHS, stored_epoch
from sapo_node.storage.counters import Counters
from sapo_node.storage.database import Database, StateError
from sapo_node.storage.files import OTHERS, for_owner_alone, made_folder
from sapo_node.storage.location import StateLocation
from sapo_node.storage.user_folders import default_state
from sapo_node.training import batch_log
from sapo_node.trust import ledger
from sapo_protocol import LocalError, Manifest, epoch_at
from sapo_protocol.files import read_bounded

_MAX_PID_BYTES = 20

SCHEMA = (
    counters.SCHEMA,
    history.SCHEMA,
    validator.SCHEMA,
    book.SCHEMA,
    memory.SCHEMA,
    batch_log.SCHEMA,
    ledger.SCHEMA,
    address_book.SCHEMA,
    trained_model.SCHEMA,
)


class NoState(StateError):
    """No node has run with this key in this swarm."""


@dataclass(frozen=True, slots=True)
class StateFolder:
    """The folder of one key in one swarm."""

    path: Path

    @property
    def database(self) -> Path:
        """The SQLite file."""
        return self.path / "node.sqlite"

    @property
    def page_token(self) -> Path:
        """The file with the token of the page, if the page is served beyond loopback."""
        return self.path / "page-token"

    @property
    def checkpoints(self) -> Path:
        """The folder of the learner's checkpoints."""
        return self.path / "checkpoints"


def state_folder(root: Path, manifest: Manifest, peer: str) -> StateFolder:
    """Return the state folder of a peer in a swarm. Its path has the network id: two swarms may have the same name."""
    return StateFolder(root / f"{manifest.name}-{manifest.network_id.hex()[:16]}" / peer)


def require_root(root: Path) -> None:
    """Raise LocalError if the folder above the one for states is missing: the path may be misspelt, and the node would
    start from nothing there. The default folder may be the first in the home of its user.
    """
    if not root.parent.is_dir() and str(root) != default_state():
        what = "is not a folder" if os.path.lexists(root.parent) else "does not exist"
        raise LocalError(
            f"cannot use the state folder {root}: {root.parent} {what}; make it first, or choose another --state"
        )


def require_usable(root: Path, manifest: Manifest) -> None:
    """Make the folder for the states of a swarm. Raises LocalError if a node could not write there."""
    folder = state_folder(root, manifest, "any").path.parent
    try:
        with for_owner_alone(), made_folder(folder), tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise _unusable(folder, error) from error


def _unusable(folder: Path, error: OSError) -> LocalError:
    return LocalError(f"cannot use the state folder {folder}: {error.strerror}; choose another --state")


def _close_to_others(path: Path) -> None:
    """Remove the permissions of group and others from a folder and everything in it."""
    for each in (path, *path.rglob("*")):
        with suppress(FileNotFoundError):  # SQLite removes its files when the last connection closes
            mode = each.lstat().st_mode
            if mode & OTHERS and not stat.S_ISLNK(mode):
                each.chmod(stat.S_IMODE(mode) & ~OTHERS)


@contextmanager
def locked(folder: StateFolder) -> Iterator[None]:
    """Lock the folder, and let only its owner read it.

    Raises LocalError if another process holds the lock, or if the folder or its permissions cannot be made.
    """
    with for_owner_alone(), _held(folder):
        try:
            _close_to_others(folder.path)
        except OSError as error:
            raise LocalError(
                f"others can read {error.filename}, and the node cannot change that ({error.strerror}); run: "
                f"chmod -R go= {folder.path}, or choose another --state"
            ) from error
        yield


@contextmanager
def _held(folder: StateFolder) -> Iterator[None]:
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder.path / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unusable(folder.path, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise LocalError(
            f"another node is running on {folder.path}; stop it, or give this one another --key or --state"
        ) from error
    try:
        # Not in the lock: `StateLocation` takes a lock that changed for that of a copied folder.
        with suppress(OSError):  # on a full disk: only `nodes` reads it
            (folder.path / "pid").write_text(str(os.getpid()))
        yield
    finally:
        os.close(descriptor)


def is_running(folder: StateFolder) -> bool:
    """Return whether a node is running on a state folder: whether a process holds its lock."""
    try:
        descriptor = os.open(folder.path / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def pid_of(folder: StateFolder) -> int | None:
    """Return the id of the last process that held the lock of a state folder; None if it is unknown."""
    try:
        return int(read_bounded(folder.path / "pid", _MAX_PID_BYTES, "process id"))
    except (LocalError, ValueError):
        return None


def state_folders(root: Path) -> list[StateFolder]:
    """Return the state folders of all keys and swarms under a folder for states, by swarm and key."""
    return [StateFolder(path.parent) for path in sorted(root.glob("*/*/node.sqlite"))]


@contextmanager
def reading(folder: StateFolder) -> Iterator[Database]:
    """Open the database of a node for reading, as `read_database` does, and close it at the end.

    Raises StateError if there is no database, and if its rows hold something else than they should.
    """
    with closing(read_database(folder)) as database, database.decoding():
        yield database


def read_database(folder: StateFolder) -> Database:
    """Open the database of a node for reading. The node may be running. Raises NoState if there is no database."""
    with suppress(NotADirectoryError, PermissionError):
        if not folder.database.is_symlink() and not folder.database.exists():
            raise NoState(
                f"there is no state at {folder.path}: this key has not been started in this swarm yet (sapo-node "
                f"start). `sapo-node nodes` shows the nodes of this machine"
            )
    return Database(folder.database, (), read_only=True)


def epochs_ahead(database: Database, manifest: Manifest, now: float) -> int:
    """Return how many epochs a state is ahead of the clock; 0 if they are so few that the node waits for them."""
    epoch = stored_epoch(database)
    ahead = 0 if epoch is None else epoch - epoch_at(manifest, now)
    return ahead if ahead > JUMP_EPOCHS else 0


def return_to_clock(folder: StateFolder, manifest: Manifest) -> int:
    """Set a state back to the epoch of the clock. Return that epoch.

    The clock must be right. Raises LocalError if a node runs on the state, if the clock is not behind it, or if the
    state was ahead for too long.
    """
    with locked(folder), closing(Database(folder.database, SCHEMA)) as database, database.transaction(durable=True):
        now = time.time()
        location = StateLocation(folder.path)
        counters = Counters(database, manifest, now=now, key_is_new=False, rng=random.SystemRandom(), location=location)
        epoch = counters.return_to_clock(now)
        ReplayWindow(database, manifest).return_to(epoch)
        ledger.return_to(database, epoch)
    return epoch
