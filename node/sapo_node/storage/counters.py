"""This node's own rounds: counters that it never uses twice, and the signed messages that it published under them.

The node reserves a counter, durably, before it generates anything for it. It stores the signed message before it
publishes the message. After a restart it sends the same bytes again.

Two envelopes of one key for one (epoch, counter) are an equivocation, and peers ban the key for good. So before it
publishes, a node listens for LISTEN_EPOCHS epochs in three cases: the key is older than this state, the state may have
been restored or copied (see `location`), or the machine was restarted. Then it listens for a random part of
LISTEN_SPREAD epochs more: if two copies start together, the copy that listens longer hears the other one. It also
listens while it does not believe its clock (`clock_guard`).
"""

import random
from dataclasses import dataclass

from sapo_node.storage import clock_guard
from sapo_node.storage.clock_guard import ClockGuard
from sapo_node.storage.database import Database, StateError
from sapo_node.storage.location import StateLocation
from sapo_protocol import LocalError, Manifest, epoch_at, epoch_start

SCHEMA = f"""
{clock_guard.SCHEMA}
CREATE TABLE IF NOT EXISTS counters (epoch INTEGER PRIMARY KEY, next INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS listening (until REAL NOT NULL, fingerprint TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS published (
    envelope_id BLOB PRIMARY KEY, epoch INTEGER NOT NULL, counter INTEGER NOT NULL, message BLOB NOT NULL
);
"""

LISTEN_EPOCHS = 2
LISTEN_SPREAD = 0.5
"""Part of an epoch over which nodes spread the end of listening."""

_RECOGNISED_EPOCHS = 16
"""Epochs for which the node remembers its own envelopes. Longer than peers accept them, in case the clock was set back.
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
        self._guard = ClockGuard(database, manifest)
        if steady is not None:
            self._guard.look(now, steady)
        fingerprint = location.fingerprint if location else ""
        row = database.row("SELECT until, fingerprint FROM listening")
        if row is not None and row[1] == fingerprint and not self._is_behind():
            return
        # From the latest epoch that the clock, the database or the location knows: the clock may be behind.
        latest = max(self.epoch(now), location.latest()[0] if location else -1)
        with database.transaction(durable=True):
            self._listen(0.0 if row is None and key_is_new else self._end_of_listening(latest), fingerprint)

    def _end_of_listening(self, epoch: int) -> float:
        """When a node may publish that begins to listen in `epoch`."""
        spread = self._rng.uniform(0, LISTEN_SPREAD) * self._manifest.epoch_seconds
        return epoch_start(self._manifest, epoch + LISTEN_EPOCHS) + spread

    def _listen(self, until: float, fingerprint: str) -> None:
        self._database.execute("DELETE FROM listening")
        self._database.execute("INSERT INTO listening VALUES (?, ?)", until, fingerprint)

    def _is_behind(self) -> bool:
        """Whether this database is older than the counter that is noted beside it."""
        if self._location is None:
            return False
        row = self._database.row(
            "SELECT epoch, next - 1 FROM counters WHERE epoch <= ? ORDER BY epoch DESC LIMIT 1", self._guard.epoch
        )
        return self._location.latest() > (row or (-1, -1))

    def look(self, now: float, steady: float) -> None:
        """Compare the clock with the steady clock. If the clock was set, the end of listening moves with it."""
        if moved := self._guard.look(now, steady):
            self._database.execute("UPDATE listening SET until = until + ? WHERE until > 0", moved)
        self._guard.enter(epoch_at(self._manifest, now))

    def epoch(self, now: float) -> int:
        """This node's epoch. If the clock goes back, it never goes back behind an epoch that the node believed."""
        current, latest = epoch_at(self._manifest, now), self._guard.epoch
        return current if latest is None else max(current, latest)

    def believed_epoch(self, now: float) -> int:
        """The epoch for what cannot be undone: `epoch`, or the last one that was believed if the clock is not."""
        latest = self._guard.epoch
        return self.epoch(now) if self._guard.believed or latest is None else latest

    def listening_seconds(self, now: float) -> float:
        """Seconds that are left until this node may publish."""
        row = self._database.row("SELECT until FROM listening")
        return max(0.0, self._guard.doubtful_seconds(now), row[0] - now if row else 0.0)

    def return_to_clock(self, now: float) -> int:
        """Leave an epoch that a wrong clock caused, for the epoch of `now`. Returns that epoch.

        The node then listens: this key may have signed envelopes of the next two epochs that the state forgot. Raises
        LocalError if the clock is not behind the state.
        """
        epoch, latest = epoch_at(self._manifest, now), self._guard.epoch
        if latest is None or latest <= epoch:
            raise LocalError(f"the clock is not behind this state: the clock says epoch {epoch}, the state {latest}")
        if self._location is not None:
            self._location.forget_latest()
        with self._database.transaction(durable=True):
            self._guard.return_to(epoch)
            row = self._database.row("SELECT fingerprint FROM listening")
            self._listen(self._end_of_listening(epoch), row[0] if row else "")
            self._database.execute("UPDATE published SET message = x'' WHERE epoch > ?", epoch)
        return epoch

    def _may_be_lost(self, epoch: int) -> bool:
        """Whether this key may have signed envelopes of `epoch` that this state does not hold."""
        row = self._database.row("SELECT until FROM listening WHERE until > 0")
        return row is not None and epoch <= epoch_at(self._manifest, row[0]) - LISTEN_EPOCHS

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
            believed = self.believed_epoch(now)
            self._database.execute("DELETE FROM counters WHERE epoch < ?", believed)
            self._database.execute("UPDATE published SET message = x'' WHERE epoch < ?", believed - 1)
            self._database.execute("DELETE FROM published WHERE epoch < ?", believed - _RECOGNISED_EPOCHS)
        if self._location is not None and self._guard.believed:
            self._location.note(epoch, counter)
        return Slot(epoch, counter)

    def keep(self, slot: Slot, envelope_id: bytes, message: bytes) -> None:
        """Store a signed message before it is published."""
        with self._database.transaction(durable=True):
            self._database.execute(
                "INSERT INTO published VALUES (?, ?, ?, ?)", envelope_id, slot.epoch, slot.counter, message
            )

    def recent(self) -> list[bytes]:
        """The signed messages of this epoch and the one before. After a restart the node sends the same bytes again."""
        return [
            row[0]
            for row in self._database.rows("SELECT message FROM published WHERE message != x'' ORDER BY epoch, counter")
        ]

    def recognise(self, envelope_id: bytes, epoch: int) -> None:
        """Check that this node wrote an envelope of its own key, or that an earlier, lost state may have written it.

        The second is possible up to the epoch in which this state began to listen. Raises KeyInUseElsewhere for any
        other envelope.
        """
        known = self._database.row("SELECT 1 FROM published WHERE envelope_id = ?", envelope_id)
        if known is None and not self._may_be_lost(epoch):
            raise KeyInUseElsewhere(
                "this node's key is in use elsewhere, or was in use with a state that is lost: an envelope of this key "
                "arrived that this node did not write; stop the other node, or start with a new key: peers ban a key "
                "for good if two nodes use it"
            )
