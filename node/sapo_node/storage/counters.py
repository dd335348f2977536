"""This node's own rounds: counters that it never uses twice, and the signed messages that it published under them.

The node reserves a counter, durably, before it generates anything for it. It stores the signed message before it
publishes the message. After a restart it sends the same bytes again.

Two envelopes of one key for one (epoch, counter) are an equivocation, and peers ban the key for good. So before it
publishes, a node listens for LISTEN_EPOCHS epochs in three cases: the key is older than this state, the state may have
been restored or copied (see `location`), or the machine was restarted. Then it listens for a random part of
LISTEN_SPREAD epochs more: if two copies start together, the copy that listens longer hears the other one.
"""

import random
from dataclasses import dataclass

from sapo_node.storage.database import Database
from sapo_node.storage.location import StateLocation
from sapo_protocol import LocalError, Manifest, epoch_at, epoch_start

SCHEMA = """
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
        location: StateLocation | None = None,
    ) -> None:
        """`key_is_new`: the key was created for this state, so no other state can have used it. `location`: the folder
        of the state, or None for a state in memory, which nobody can copy.
        """
        self._database = database
        self._manifest = manifest
        self._location = location
        fingerprint = location.fingerprint if location else ""
        row = database.row("SELECT until, fingerprint FROM listening")
        if row is not None and row[1] == fingerprint and not self._is_behind():
            return
        until = 0.0
        if row is not None or not key_is_new:
            spread = rng.uniform(0, LISTEN_SPREAD) * manifest.epoch_seconds
            # From the latest epoch that the clock, the database or the location knows: the clock may be behind.
            latest = max(self.epoch(now), location.latest()[0] if location else -1)
            until = epoch_start(manifest, latest + LISTEN_EPOCHS) + spread
        with database.transaction(durable=True):
            database.execute("DELETE FROM listening")
            database.execute("INSERT INTO listening VALUES (?, ?)", until, fingerprint)

    def _is_behind(self) -> bool:
        """Whether this database is older than the counter that is noted beside it."""
        if self._location is None:
            return False
        row = self._database.row("SELECT epoch, next - 1 FROM counters ORDER BY epoch DESC LIMIT 1")
        return self._location.latest() > (row or (-1, -1))

    def epoch(self, now: float) -> int:
        """This node's epoch. It never goes back, even if the clock does."""
        row = self._database.row("SELECT max(epoch) FROM counters")
        latest: int | None = row[0] if row else None
        current = epoch_at(self._manifest, now)
        return current if latest is None else max(current, latest)

    def listening_seconds(self, now: float) -> float:
        """Seconds that are left until this node may publish."""
        row = self._database.row("SELECT until FROM listening")
        return max(0.0, row[0] - now) if row else 0.0

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
            if counter >= self._manifest.max_rounds:
                return None
            self._database.execute("INSERT OR REPLACE INTO counters VALUES (?, ?)", epoch, counter + 1)
            self._database.execute("DELETE FROM counters WHERE epoch < ?", epoch)
            self._database.execute("UPDATE published SET message = x'' WHERE epoch < ?", epoch - 1)
            self._database.execute("DELETE FROM published WHERE epoch < ?", epoch - _RECOGNISED_EPOCHS)
        if self._location is not None:
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
