"""This node's own rounds: counters that are never used twice, and the signed bytes that were published under them.

A counter is reserved, durably, before anything is generated for it; the signed message is stored before it is
published and re-sent verbatim. Two envelopes under one (epoch, counter) would be equivocation, and cost the key its
standing for good: so a key that is older than this state (restored, copied, or its state was lost) first listens for
two epochs.
"""

from dataclasses import dataclass

from sapo_node.database import Database
from sapo_protocol import LocalError, Manifest, epoch_at

SCHEMA = """
CREATE TABLE IF NOT EXISTS counters (epoch INTEGER PRIMARY KEY, next INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS listening (until INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS published (
    envelope_id BLOB PRIMARY KEY, epoch INTEGER NOT NULL, counter INTEGER NOT NULL, message BLOB NOT NULL
);
"""

LISTEN_EPOCHS = 2

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

    def __init__(self, database: Database, manifest: Manifest, *, now: float, key_is_new: bool) -> None:
        """`key_is_new`: the key was made for this state, so nobody can have used it before."""
        self._database = database
        self._manifest = manifest
        if database.row("SELECT until FROM listening") is None:
            until = 0 if key_is_new else epoch_at(manifest, now) + LISTEN_EPOCHS
            with database.transaction(durable=True):
                database.execute("INSERT INTO listening VALUES (?)", until)

    def epoch(self, now: float) -> int:
        """This node's epoch, which never runs backwards, whatever its clock does."""
        row = self._database.row("SELECT max(epoch) FROM counters")
        latest: int | None = row[0] if row else None
        current = epoch_at(self._manifest, now)
        return current if latest is None else max(current, latest)

    def listening_epochs(self, now: float) -> int:
        """For how many more epochs this node must not publish."""
        row = self._database.row("SELECT until FROM listening")
        return max(0, row[0] - self.epoch(now)) if row else 0

    def reserve(self, now: float) -> Slot | None:
        """The next unused counter, durably taken; None when this epoch's are used up."""
        with self._database.transaction(durable=True):
            epoch = self.epoch(now)
            row = self._database.row("SELECT next FROM counters WHERE epoch = ?", epoch)
            counter: int = row[0] if row else 0
            if counter >= self._manifest.max_rounds:
                return None
            self._database.execute("INSERT OR REPLACE INTO counters VALUES (?, ?)", epoch, counter + 1)
            self._database.execute("DELETE FROM counters WHERE epoch < ?", epoch)
            self._database.execute("UPDATE published SET message = x'' WHERE epoch < ?", epoch - 1)
            self._database.execute("DELETE FROM published WHERE epoch < ?", epoch - _RECOGNISED_EPOCHS)
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

    def recognise(self, envelope_id: bytes) -> None:
        """Check that an envelope of this node's own key is one it wrote. Raises KeyInUseElsewhere."""
        if self._database.row("SELECT 1 FROM published WHERE envelope_id = ?", envelope_id) is None:
            raise KeyInUseElsewhere(
                "this node's key is in use elsewhere, or was with a state that is lost: an envelope arrived that it "
                "does not know; stop the other node, or start with a new key: going on would look like equivocation"
            )
