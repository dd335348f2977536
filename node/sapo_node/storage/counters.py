"""This node's own rounds: counters that are never used twice, and the signed bytes that were published under them.

A counter is reserved, durably, before anything is generated for it; the signed message is stored before it is
published and re-sent verbatim. Two envelopes under one (epoch, counter) would be equivocation, and the key would
be banned for good: so a key that is older than this state, and a state that is not where it was (restored, copied, or
its machine was), first listens for two epochs. Then it waits for a random moment more: of two copies that started
together, the one that waits longer hears the other.
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
"""Share of an epoch over which the ends of listening are spread."""

_RECOGNISED_EPOCHS = 16
"""Own envelopes are told from a copy's for this long, which outlasts the window also where the clock was set back."""


class KeyInUseElsewhere(LocalError):
    """An envelope of this node's own key arrived that this node did not write."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One reserved round of this node."""

    epoch: int
    counter: int


class Counters:
    """Rounds reserved and published by this node's key."""

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
        """`key_is_new`: the key was made for this state, so nobody can have used it before. `location`: where the state
        lies, None for one that nobody can copy.
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
            # From the latest epoch that anything here knows of: the clock may be behind.
            latest = max(self.epoch(now), location.latest()[0] if location else -1)
            until = epoch_start(manifest, latest + LISTEN_EPOCHS) + spread
        with database.transaction(durable=True):
            database.execute("DELETE FROM listening")
            database.execute("INSERT INTO listening VALUES (?, ?)", until, fingerprint)

    def _is_behind(self) -> bool:
        """Whether this database is older than the note beside it."""
        if self._location is None:
            return False
        row = self._database.row("SELECT epoch, next - 1 FROM counters ORDER BY epoch DESC LIMIT 1")
        return self._location.latest() > (row or (-1, -1))

    def epoch(self, now: float) -> int:
        """This node's epoch, which never runs backwards, whatever its clock does."""
        row = self._database.row("SELECT max(epoch) FROM counters")
        latest: int | None = row[0] if row else None
        current = epoch_at(self._manifest, now)
        return current if latest is None else max(current, latest)

    def listening_seconds(self, now: float) -> float:
        """For how much longer this node must not publish."""
        row = self._database.row("SELECT until FROM listening")
        return max(0.0, row[0] - now) if row else 0.0

    def _may_be_lost(self, epoch: int) -> bool:
        """Whether this key may have signed in an epoch what this state does not have."""
        row = self._database.row("SELECT until FROM listening WHERE until > 0")
        return row is not None and epoch <= epoch_at(self._manifest, row[0]) - LISTEN_EPOCHS

    def reserve(self, now: float) -> Slot | None:
        """The next unused counter, durably taken; None when this epoch's are used up, or before the genesis."""
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
        """The signed messages of this and the last epoch, to be sent again as they are after a restart."""
        return [
            row[0]
            for row in self._database.rows("SELECT message FROM published WHERE message != x'' ORDER BY epoch, counter")
        ]

    def recognise(self, envelope_id: bytes, epoch: int) -> None:
        """Check that this node wrote an envelope of its own key, or that it may be lost with an earlier state: of no
        later epoch than the one in which this state began to listen. Raises KeyInUseElsewhere.
        """
        known = self._database.row("SELECT 1 FROM published WHERE envelope_id = ?", envelope_id)
        if known is None and not self._may_be_lost(epoch):
            raise KeyInUseElsewhere(
                "this node's key is in use elsewhere, or was with a state that is lost: an envelope arrived that it "
                "does not know; stop the other node, or start with a new key: going on would look like equivocation"
            )
