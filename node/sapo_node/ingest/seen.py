"""The replay window: (issuer, epoch, counter) is accepted once, ever.

Envelopes older than the window are refused by their epoch, so only the window is remembered; and since a clock may go
back, an epoch that was forgotten is refused from then on, whatever the clock says. The first envelope is kept, because
a second one with other content under the same counter makes the pair a proof of equivocation.
"""

from sapo_node.storage.database import Database
from sapo_protocol import Header, Manifest, Opened, in_window

SCHEMA = """
CREATE TABLE IF NOT EXISTS seen (
    issuer BLOB, epoch INTEGER, counter INTEGER, envelope_id BLOB NOT NULL, envelope BLOB NOT NULL,
    received INTEGER NOT NULL,
    PRIMARY KEY (issuer, epoch, counter)
);
CREATE INDEX IF NOT EXISTS seen_id ON seen (envelope_id);
CREATE TABLE IF NOT EXISTS forgotten (before INTEGER NOT NULL);
"""


class ReplayWindow:
    """What was accepted in the epochs that are still open."""

    def __init__(self, database: Database, manifest: Manifest) -> None:
        self._database = database
        self._manifest = manifest
        row = database.row("SELECT before FROM forgotten")
        self._forgotten: int | None = row[0] if row else None

    def is_open(self, epoch: int, now: float) -> bool:
        """Whether an envelope of an epoch may still be accepted: the epoch is in the window of the spec, and this node
        has not forgotten it.
        """
        return in_window(self._manifest, epoch, now) and self.remembers(epoch)

    def received(self, envelope_id: bytes) -> int | None:
        """The bodies that came with an accepted envelope, as bits by k; None when it was not accepted."""
        row = self._database.row("SELECT received FROM seen WHERE envelope_id = ?", envelope_id)
        return row[0] if row else None

    def first(self, issuer: bytes, header: Header) -> bytes | None:
        """The envelope accepted under the same counter, if there is one."""
        row = self._database.row(
            "SELECT envelope FROM seen WHERE issuer = ? AND epoch = ? AND counter = ?",
            issuer,
            header.epoch,
            header.counter,
        )
        return row[0] if row else None

    def accept(self, opened: Opened, header: Header, *, received: int) -> None:
        """Remember an envelope and which of its bodies have come by now."""
        self._database.execute(
            "INSERT OR REPLACE INTO seen VALUES (?, ?, ?, ?, ?, ?)",
            opened.issuer,
            header.epoch,
            header.counter,
            opened.envelope_id,
            opened.envelope,
            received,
        )

    def forget_before(self, epoch: int) -> None:
        """Drop what the window refuses anyway, for good."""
        if self.remembers(epoch):
            self._database.execute("DELETE FROM seen WHERE epoch < ?", epoch)
            self._database.execute("DELETE FROM forgotten")
            self._database.execute("INSERT INTO forgotten VALUES (?)", epoch)
            self._forgotten = epoch

    def return_to(self, epoch: int) -> None:
        """Remember again from epoch + 2 on, because a wrong clock made this node forget. Envelopes up to 30 s before
        epoch + 1 may have been accepted and forgotten.
        """
        self._database.execute("UPDATE forgotten SET before = min(before, ?)", epoch + 2)
        self._forgotten = min(self._forgotten, epoch + 2) if self._forgotten is not None else None

    def remembers(self, epoch: int) -> bool:
        """Whether what was accepted in an epoch is still known."""
        return self._forgotten is None or epoch >= self._forgotten


def bits_of(bodies: tuple[bytes | None, ...]) -> int:
    """Which bodies are there: bit k for group k."""
    return sum(1 << k for k, body in enumerate(bodies) if body is not None)
