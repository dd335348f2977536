"""Detects a state folder that was restored or copied since the node last used it.

Peers ban a key for good if it signs two contents for one round. An honest operator can cause this: by a backup that is
restored, a folder that is copied to a second machine, or a cloned container. The database cannot show any of these, so
the node also looks at two files beside it:

- The lock file. Nothing writes to it after its creation, so a copied or restored lock file has another inode or change
  time. On a clone of the whole machine, the boot id differs.
- The file `latest`, which holds the latest counter. If the database is older than this file, it was restored.

The node cannot detect that its machine was cloned, memory included, while it ran.
"""

import os
from pathlib import Path

from sapo_protocol import LocalError
from sapo_protocol.files import read_bounded

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MAX_NOTE_BYTES = 64


class StateLocation:
    """The state folder of one key in one swarm."""

    def __init__(self, folder: Path) -> None:
        """`folder` must hold the lock file."""
        self._folder = folder
        self._latest = folder / "latest"

    @property
    def fingerprint(self) -> str:
        """A text that changes when the folder is copied or restored, and when the machine is restarted."""
        try:
            lock = (self._folder / "lock").stat()
            boot = _BOOT_ID.read_text("ascii").strip() if _BOOT_ID.exists() else ""
        except OSError as error:
            raise LocalError(f"cannot read the state folder {self._folder}: {error.strerror}") from error
        return f"{boot} {lock.st_dev} {lock.st_ino} {lock.st_ctime_ns}"

    def note(self, epoch: int, counter: int) -> None:
        """Note a reserved counter in the file, unless a later one is there: the clock may have been set back."""
        if (epoch, counter) <= self.latest():
            return
        try:
            # A link may be left from a time when others could write the folder. It could lead to any file of this user.
            descriptor = os.open(self._latest, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                # Numbers of fixed width, so that each note overwrites the one before completely.
                os.pwrite(descriptor, b"%020d %020d\n" % (epoch, counter), 0)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise LocalError(f"cannot write {self._latest}: {error.strerror}; free disk space") from error

    def forget_latest(self) -> None:
        """Remove the note, because it is of an epoch that a wrong clock caused."""
        try:
            self._latest.unlink(missing_ok=True)
        except OSError as error:
            raise LocalError(f"cannot remove {self._latest}: {error.strerror}") from error

    def latest(self) -> tuple[int, int]:
        """(epoch, counter) of the last note; (-1, -1) if there is none."""
        try:
            epoch, counter = read_bounded(self._latest, _MAX_NOTE_BYTES, "note of a counter").split()
            return int(epoch), int(counter)
        except (LocalError, ValueError):
            return -1, -1
