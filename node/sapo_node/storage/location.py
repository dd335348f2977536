"""Whether a state is still the one that was last used: the same files in the same place, and no older than they were.

A key that signs two contents for one round is banned for good, and an honest operator comes there easily: a backup put
back, a folder copied to a second machine, a cloned container. None of these can be told from the contents of the
folder alone, so two things beside the database are watched. The lock file is never written after it was made, so
whoever copies or restores it changes its inode or the time of its last change, and a clone of the whole machine has
another boot id. And the latest counter is noted in a file of its own, so that an older database beside it shows.

A machine that is cloned while it runs, memory and all, cannot be noticed from inside.
"""

import os
from pathlib import Path

from sapo_protocol import LocalError

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class StateLocation:
    """The folder of one key in one swarm, as a thing that can be moved, copied and restored."""

    def __init__(self, folder: Path) -> None:
        """`folder` holds the lock file already."""
        self._folder = folder
        self._latest = folder / "latest"

    @property
    def fingerprint(self) -> str:
        """Changes when the folder is copied or restored, and when the machine starts anew."""
        try:
            lock = (self._folder / "lock").stat()
            boot = _BOOT_ID.read_text("ascii").strip() if _BOOT_ID.exists() else ""
        except OSError as error:
            raise LocalError(f"cannot read the state folder {self._folder}: {error.strerror}") from error
        return f"{boot} {lock.st_dev} {lock.st_ino} {lock.st_ctime_ns}"

    def note(self, epoch: int, counter: int) -> None:
        """Remember a reserved counter outside of the database, if it is the latest ever: clocks go back."""
        if (epoch, counter) <= self.latest():
            return
        try:
            descriptor = os.open(self._latest, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                # One width, so that a shorter number leaves nothing of a longer one behind.
                os.pwrite(descriptor, b"%020d %020d\n" % (epoch, counter), 0)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise LocalError(f"cannot write {self._latest}: {error.strerror}; free disk space") from error

    def latest(self) -> tuple[int, int]:
        """(epoch, counter) of the last note; (-1, -1) when there is none."""
        try:
            epoch, counter = self._latest.read_text("ascii").split()
            return int(epoch), int(counter)
        except (OSError, ValueError):
            return -1, -1
