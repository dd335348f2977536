"""This node's own rounds: counters that it never uses twice, and the signed messages that it published under them.

The node reserves a counter, durably, before it generates anything for it. It stores the signed message before it
publishes the message. After a restart it sends the same bytes again.

Two envelopes of one key for one (epoch, counter) are an equivocation, and peers ban the key for good. So before it
publishes, a node listens for LISTEN_EPOCHS epochs in four cases: the key is older than this state, the state may have
been restored or copied (see `location`), the machine was restarted, or the node stopped because it heard another one
that uses its key. Then it listens for a random part of LISTEN_SPREAD epochs more: if two copies start together, the
copy that listens longer hears the other one. The steady clock counts the seconds of listening while the node runs: a
clock that is set neither ends nor prolongs it. The node also listens while it does not believe its clock
(`clock_guard`).

No epoch is over for good: an operator may set the epoch back (`return_to_clock`). So the node remembers its counters
and envelopes of the last KEPT_EPOCHS epochs in which it played.
"""

import logging
import random
from dataclasses import dataclass

from sapo_node.storage import clock_guard
from sapo_node.storage.clock_guard import ClockGuard
from sapo_node.storage.database import Database, StateError
from sapo_node.storage.location import StateLocation
from sapo_protocol import LocalError, Manifest, epoch_at, epoch_start

logger = logging.getLogger(__name__)

SCHEMA = f"""
{clock_guard.SCHEMA}
CREATE TABLE IF NOT EXISTS counters (epoch INTEGER PRIMARY KEY, next INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS forgotten_counters (before INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS listening_period (
    seconds REAL NOT NULL, listened REAL NOT NULL, began INTEGER NOT NULL, fingerprint TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS published (
    envelope_id BLOB PRIMARY KEY, epoch INTEGER NOT NULL, counter INTEGER NOT NULL, message BLOB NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS signed (
    envelope_id BLOB PRIMARY KEY, epoch INTEGER NOT NULL, counter INTEGER NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS signed_epoch ON signed (epoch);
"""

LISTEN_EPOCHS = 2
LISTEN_SPREAD = 0.5
"""Part of an epoch over which nodes spread the end of listening."""

KEPT_EPOCHS = 1_024
"""Epochs of its own rounds of which the node remembers counters and envelopes: a week of epochs of ten minutes."""
_LAST_EPOCHS = 16
"""Epochs before the current one of which it remembers them in any case. Longer than peers accept envelopes, in case
the clock was set back.
"""


class KeyInUseElsewhere(LocalError):
    """An envelope arrived that this node's key signed and that this node did not write."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One reserved round of this node."""

    epoch: int
    counter: int


class Counters:
    """Rounds that this node reserved and published."""

    def __init__(
        self,
        database: Database,
        manifest: Manifest,
        *,
        now: float,
        key_is_new: bool,
        rng: random.Random,
        steady: float | None = None,
        location: StateLocation | None = None,
    ) -> None:
        """`key_is_new`: the key was created for this state, so no other state can have used it. `steady`: what the
        steady clock says at `now`; without it the clock is believed. `location`: the folder of the state, or None for a
        state in memory, which nobody can copy.
        """
        self._database = database
        self._manifest = manifest
        self._rng = rng
        self._location = location
        self._steady = steady
        """The steady clock at the last look of this process."""
        self._guard = ClockGuard(database, manifest)
        if steady is not None:
            self._guard.look(now, steady)
        fingerprint = location.fingerprint if location else ""
        row = database.row("SELECT fingerprint FROM listening_period")
        if row is not None and row[0] == fingerprint and not self._is_behind():
            return
        with database.transaction(durable=True):
            if row is None and key_is_new:
                self._store_listening(0.0, -1, fingerprint)
            else:
                self._listen(now, fingerprint)

    def _listen(self, now: float, fingerprint: str) -> None:
        """Begin to listen, in the epoch of the clock or in a later one that the state knows."""
        epoch = max(self.epoch(now), self._latest_known())
        begins = max(now, epoch_start(self._manifest, epoch))
        spread = self._rng.uniform(0, LISTEN_SPREAD) * self._manifest.epoch_seconds
        self._store_listening(epoch_start(self._manifest, epoch + LISTEN_EPOCHS) + spread - begins, epoch, fingerprint)

    def _store_listening(self, seconds: float, began: int, fingerprint: str) -> None:
        self._database.execute("DELETE FROM listening_period")
        self._database.execute("INSERT INTO listening_period VALUES (?, 0.0, ?, ?)", seconds, began, fingerprint)

    def _fingerprint(self) -> str:
        """The fingerprint of the state's place when the node last began to listen."""
        row = self._database.row("SELECT fingerprint FROM listening_period")
        return row[0] if row else ""

    def _latest_known(self) -> int:
        """The latest epoch that the database or the note beside it knows; -1 if they know none."""
        believed = -1 if self._guard.epoch is None else self._guard.epoch
        return max(believed, self._location.latest()[0] if self._location else -1)

    def _seconds_behind(self, now: float) -> float:
        """Seconds until the clock reaches the latest epoch that the state knows, which do not count as listening.
        Negative once the clock has reached it.
        """
        return epoch_start(self._manifest, self._latest_known()) - now

    def _listening(self, now: float, steady: float) -> tuple[float, float]:
        """Seconds that are left to listen, and seconds for which the node has listened."""
        left, listened = self._database.row("SELECT seconds, listened FROM listening_period") or (0.0, 0.0)
        if not left or self._steady is None:
            return left, listened
        passed = max(0.0, min(steady - self._steady, -self._seconds_behind(now)))
        # It ends when the clock is believed: only then the epoch in which it began is known.
        return max(left - passed, 0.0 if self._guard.believed else 1.0), listened + passed

    def _is_behind(self) -> bool:
        """Return whether this database is older than the counter that is noted beside it."""
        if self._location is None:
            return False
        row = self._database.row(
            "SELECT epoch, next - 1 FROM counters WHERE epoch <= ? ORDER BY epoch DESC LIMIT 1", self._guard.epoch
        )
        return self._location.latest() > (row or (-1, -1))

    def look(self, now: float, steady: float) -> None:
        """Compare the clock with the steady clock, and count what the node has listened."""
        was_believed = self._guard.believed
        self._guard.look(now, steady)
        if self._seconds_behind(now) <= 0:
            left, listened = self._listening(now, steady)
            self._database.execute(
                "UPDATE listening_period SET seconds = ?, listened = ?, began = ? WHERE seconds > 0",
                *(left, listened, epoch_at(self._manifest, now - listened)),
            )
        self._steady = steady
        self._guard.enter(epoch_at(self._manifest, now))
        if self._guard.believed and not was_believed:
            left = self.listening_seconds(now, steady)
            logger.warning(
                "the node believes the clock again, in epoch %d: it publishes %s",
                self.epoch(now),
                f"in {left / 60:.0f} min" if left else "again",
            )

    def epoch(self, now: float) -> int:
        """This node's epoch. If the clock goes back, it never goes back behind an epoch that the node believed."""
        current, latest = epoch_at(self._manifest, now), self._guard.epoch
        return current if latest is None else max(current, latest)

    def believed_epoch(self, now: float) -> int:
        """The epoch for what cannot be undone: `epoch`, or the last one that was believed if the clock is not."""
        latest = self._guard.epoch
        return self.epoch(now) if self._guard.believed or latest is None else latest

    @property
    def believes_clock(self) -> bool:
        """False from a jump of the clock until the clock has kept its time."""
        return self._guard.believed

    def listening_seconds(self, now: float, steady: float) -> float:
        """Seconds that are left until this node may publish."""
        left, _ = self._listening(now, steady)
        return max(self._guard.doubtful_seconds(now), left + max(0.0, self._seconds_behind(now)) if left else 0.0)

    def return_to_clock(self, now: float) -> int:
        """Leave an epoch that a wrong clock caused, for the epoch of `now`. Returns that epoch.

        The node then listens: this key may have signed envelopes of the next two epochs that the state forgot. Raises
        LocalError if the clock is not behind the state, or if the state forgot counters that it used in later epochs.
        """
        epoch, latest = epoch_at(self._manifest, now), self._guard.epoch
        if latest is None or latest <= epoch:
            raise LocalError(f"the clock is not behind this state: the clock says epoch {epoch}, the state {latest}")
        if self._database.row("SELECT 1 FROM forgotten_counters WHERE before > ?", epoch + 1):
            raise LocalError(
                f"this state was ahead of the clock for too long: it does not know all counters that it used between "
                f"epoch {epoch} and epoch {latest}; start with a new key, or when the clock has reached epoch {latest}"
            )
        if self._location is not None:
            self._location.forget_latest()
        with self._database.transaction(durable=True):
            self._guard.return_to(epoch)
            self._listen(now, self._fingerprint())
            self._database.execute("DELETE FROM published WHERE epoch > ?", epoch)
        return epoch

    def _may_be_lost(self, epoch: int) -> bool:
        """Return whether this key may have signed envelopes of `epoch` that this state does not hold."""
        row = self._database.row("SELECT began FROM listening_period")
        return row is not None and epoch <= row[0]

    def reserve(self, now: float) -> Slot | None:
        """Reserve the next unused counter, durably. None if the epoch has no counter left, or before the genesis."""
        with self._database.transaction(durable=True):
            epoch = self.epoch(now)
            if epoch < 0:
                return None
            row = self._database.row("SELECT next FROM counters WHERE epoch = ?", epoch)
            counter: int = row[0] if row else 0
            if counter < 0:
                raise StateError(f"counter {counter} of epoch {epoch} is damaged; restore the state from a backup")
            if counter >= self._manifest.max_rounds:
                return None
            self._guard.enter(epoch)
            self._database.execute("INSERT OR REPLACE INTO counters VALUES (?, ?)", epoch, counter + 1)
            self._forget(self.believed_epoch(now))
        if self._location is not None and self._guard.believed:
            self._location.note(epoch, counter)
        return Slot(epoch, counter)

    def _forget(self, believed: int) -> None:
        """Forget what is too old for an epoch that is believed."""
        self._database.execute("DELETE FROM published WHERE epoch < ?", believed - 1)
        too_many = self._database.row("SELECT epoch FROM counters ORDER BY epoch DESC LIMIT 1 OFFSET ?", KEPT_EPOCHS)
        if too_many:
            before = min(too_many[0] + 1, believed - _LAST_EPOCHS)
            self._database.execute("DELETE FROM counters WHERE epoch < ?", before)
            self._database.execute("DELETE FROM signed WHERE epoch < ?", before)
            self._database.execute("DELETE FROM forgotten_counters")
            self._database.execute("INSERT INTO forgotten_counters VALUES (?)", before)

    def keep(self, slot: Slot, envelope_id: bytes, message: bytes) -> None:
        """Store a signed message before it is published."""
        with self._database.transaction(durable=True):
            signed = envelope_id, slot.epoch, slot.counter
            self._database.execute("INSERT INTO signed VALUES (?, ?, ?)", *signed)
            self._database.execute("INSERT INTO published VALUES (?, ?, ?, ?)", *signed, message)

    def recent(self) -> list[bytes]:
        """The signed messages of this epoch and the one before. After a restart the node sends the same bytes again."""
        return [row[0] for row in self._database.rows("SELECT message FROM published ORDER BY epoch, counter")]

    def recognise(self, envelope_id: bytes, epoch: int) -> None:
        """Check that this node wrote an envelope of its own key, or that an earlier, lost state may have written it.

        The second is possible up to the epoch in which this state began to listen. Raises KeyInUseElsewhere for any
        other envelope.
        """
        known = self._database.row("SELECT 1 FROM signed WHERE envelope_id = ?", envelope_id)
        if known is None and not self._may_be_lost(epoch):
            self._listen_again(epoch)
            raise KeyInUseElsewhere(
                "this node's key is in use elsewhere, or was in use with a state that is lost: an envelope of this key "
                "arrived that this node did not write; stop the other node, or start with a new key: peers ban a key "
                "for good if two nodes use it"
            )

    def _listen_again(self, epoch: int) -> None:
        """Listen from the beginning: a service manager may start the node again while the other one runs."""
        seconds = (LISTEN_EPOCHS + self._rng.uniform(0, LISTEN_SPREAD)) * self._manifest.epoch_seconds
        with self._database.transaction(durable=True):
            self._store_listening(seconds, epoch, self._fingerprint())
