"""Holds back a jump of the clock until the clock has kept it for two epochs.

A node drops messages, ends bans and advances its epoch for good when its clock says that an epoch has begun. So a clock
that is a day ahead for a moment must not be believed at once. The guard compares it with the steady clock of the
machine, which counts the seconds since the machine started and which nobody sets.

- The clock is believed while it and the steady clock advance together. So a node that was off for a week is believed if
  its machine ran on. In JUMP_EPOCHS epochs of the steady clock the two may move apart by as many epochs, in however
  many jumps.
- A process that starts also believes a clock that is at most JUMP_EPOCHS away from the last epoch that was believed:
  the machine may have been restarted, and with it the steady clock.
- Any other time is believed once it has been kept for JUMP_EPOCHS epochs of the steady clock. Until then the node
  publishes nothing (`counters`) and drops nothing (`app.node.Epochs`).
- The believed epoch never goes back, except when an operator runs `doctor --repair` (`return_to`).

    guard.look(clock.now(), clock.steady())
    guard.believed, guard.epoch
"""

import logging

from sapo_node.storage.database import Database
from sapo_protocol import Manifest, epoch_at

logger = logging.getLogger(__name__)

SCHEMA = """
CREATE TABLE IF NOT EXISTS clock (epoch INTEGER NOT NULL, zero REAL, jumped_to REAL, since REAL) STRICT;
"""

JUMP_EPOCHS = 2
"""Epochs by which the clock may jump without being doubted, and for which it must keep a larger jump."""


def stored_epoch(database: Database) -> int | None:
    """The latest epoch that the node of a database believed; None if it has played no round."""
    row = database.row("SELECT epoch FROM clock") or database.row("SELECT max(epoch) FROM counters")
    return row[0] if row else None


class ClockGuard:
    """True if this node believes its clock, and the latest epoch that it believed."""

    def __init__(self, database: Database, manifest: Manifest) -> None:
        self._database = database
        self._manifest = manifest
        self._most = JUMP_EPOCHS * manifest.epoch_seconds
        self._zero: float | None = None
        """Unix time at which the steady clock was zero, by the clock that is compared with; `_believe` replaces it."""
        self._compared_since: float | None = None
        """Steady time at which the comparison with `_zero` began."""
        self._jumped_to: float | None = None
        """The same by a clock that is not believed yet."""
        self._since = 0.0
        """Unix time, by that clock, at which the jump to `_jumped_to` was first seen."""
        self._seen: float | None = None
        """The same as `_zero`, by the last look of this process."""
        self.epoch = stored_epoch(database)
        """The latest epoch that was believed; None in a new state."""
        if row := database.row("SELECT zero, jumped_to, since FROM clock"):
            self._zero, self._jumped_to, self._since = row

    @property
    def believed(self) -> bool:
        """Return whether the node believes what its clock said at the last look."""
        return self._jumped_to is None

    def look(self, now: float, steady: float) -> None:
        """Compare Unix time with the steady clock, both in seconds."""
        zero, is_first = now - steady, self._seen is None
        self._seen = zero
        if self._compared_since is None:
            self._compared_since = steady
        if self._zero is not None and abs(zero - self._zero) <= self._most:
            self._believe(zero, now, is_kept=steady - self._compared_since >= self._most)
        elif self._zero is None or self.epoch is None or (is_first and self._is_near(now)):
            self._believe(zero, now, is_kept=True)
        elif self._jumped_to is None or abs(zero - self._jumped_to) > self._most:
            self._doubt(zero, now)
        elif self._kept(now) >= self._most:
            self._believe(zero, now, is_kept=True)

    def doubtful_seconds(self, now: float) -> float:
        """Seconds for which the clock must still keep its jump; 0 if it is believed."""
        return 0.0 if self.believed else max(1.0, self._most - self._kept(now))

    def enter(self, epoch: int) -> None:
        """Note that the node is in an epoch, if its clock is believed. The believed epoch never goes back."""
        if self.believed and (self.epoch is None or epoch > self.epoch):
            self.epoch = epoch
            self._store()

    def return_to(self, epoch: int) -> None:
        """Go back to an epoch, because the clock was wrong when the node entered a later one."""
        self.epoch, self._jumped_to = epoch, None
        self._store()

    def _kept(self, now: float) -> float:
        """Seconds of the steady clock since the clock jumped: a second jump must not end the doubt about the first."""
        assert self._jumped_to is not None
        zero = self._jumped_to if self._seen is None else self._seen
        return (now - zero) - (self._since - self._jumped_to)

    def _is_near(self, now: float) -> bool:
        return self.epoch is not None and abs(epoch_at(self._manifest, now) - self.epoch) <= JUMP_EPOCHS

    def _believe(self, zero: float, now: float, *, is_kept: bool) -> None:
        """Believe the clock. If it has kept this time for long enough, compare with it from now on."""
        is_news = self._jumped_to is not None
        self._jumped_to = None
        if is_kept:
            is_news = is_news or self._zero is None or abs(zero - self._zero) > 1.0
            self._zero, self._compared_since = zero, now - zero
        if self.epoch is None:
            self.epoch = epoch_at(self._manifest, now)
        if is_news:
            self._store()

    def _doubt(self, zero: float, now: float) -> None:
        self._jumped_to, self._since = zero, now
        self._store()
        logger.warning(
            "the clock jumped, or the machine was off: it says epoch %d after epoch %d; the node publishes nothing "
            "until the clock has kept that for %d epochs",
            epoch_at(self._manifest, now),
            self.epoch,
            JUMP_EPOCHS,
        )

    def _store(self) -> None:
        with self._database.transaction():
            self._database.execute("DELETE FROM clock")
            values = (self.epoch, self._zero, self._jumped_to, self._since)
            self._database.execute("INSERT INTO clock VALUES (?, ?, ?, ?)", *values)
