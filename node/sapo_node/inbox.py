"""Rollouts that are signed and well-formed but not yet verified: bounded, and drawn by peer, never first-come.

Within a class of standing a peer is drawn at random and then the rollout of it that arrived last: a peer that sends
more is not verified more, and what is trained on is what its policy does by now. What overflows is the oldest of the
peer that holds most.
"""

from collections import Counter

from sapo_node.database import Database
from sapo_node.trust import policy
from sapo_protocol import (
    Manifest,
    Rollout,
    encode_message,
    open_message,
    peer_id,
)

SCHEMA = """
CREATE TABLE IF NOT EXISTS inbox (
    envelope_id BLOB PRIMARY KEY, peer TEXT NOT NULL, epoch INTEGER NOT NULL, message BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS inbox_peer ON inbox (peer);
"""

MAX_ROLLOUTS = 2_048
MAX_PER_PEER = 64


class Inbox:
    """Rollouts that wait for verification."""

    def __init__(self, database: Database, manifest: Manifest) -> None:
        self._database = database
        self._manifest = manifest
        self._held = self._count()

    def __len__(self) -> int:
        return self._held.total()

    def peers(self) -> list[str]:
        """The peers of whom rollouts wait, in a stable order."""
        return sorted(self._held)

    def put(self, rollout: Rollout) -> None:
        """Add a rollout, or bodies to one that still waits; make room where there is none."""
        peer, envelope_id = peer_id(rollout.opened.issuer), rollout.opened.envelope_id
        bodies = rollout.bodies
        waiting = self._database.row("SELECT message FROM inbox WHERE envelope_id = ?", envelope_id)
        if waiting:
            bodies = tuple(new or old for new, old in zip(bodies, self._open(waiting[0]).bodies, strict=True))
            self._remove(envelope_id, peer)
        if self._held[peer] >= MAX_PER_PEER:
            self._drop_oldest_of(peer)
        elif len(self) >= MAX_ROLLOUTS:
            self._drop_oldest_of(max(self.peers(), key=self._held.__getitem__))
        message = encode_message(rollout.opened.envelope, bodies)
        self._database.execute(
            "INSERT INTO inbox VALUES (?, ?, ?, ?)", envelope_id, peer, rollout.header.epoch, message
        )
        self._held[peer] += 1

    def draw(self, peer: str) -> Rollout | None:
        """Take out the rollout of a peer that arrived last; None when there is none."""
        row = self._database.row(
            "SELECT envelope_id, message FROM inbox WHERE peer = ? ORDER BY rowid DESC LIMIT 1", peer
        )
        if row is None:
            return None
        envelope_id, message = row
        self._remove(envelope_id, peer)
        return self._open(message)

    def advance(self, epoch: int) -> None:
        """Enter an epoch: drop the rollouts that are too old to be trained on."""
        self._database.execute("DELETE FROM inbox WHERE epoch < ?", epoch - policy.MAX_AGE)
        self._held = self._count()

    def forget(self, peer: str) -> None:
        """Drop all rollouts of a peer."""
        self._database.execute("DELETE FROM inbox WHERE peer = ?", peer)
        self._held.pop(peer, None)

    def _count(self) -> Counter[str]:
        return Counter(dict(self._database.rows("SELECT peer, count(*) FROM inbox GROUP BY peer")))

    def _open(self, message: bytes) -> Rollout:
        """Stored bytes go through the same gate as received ones, so a damaged row cannot become a rollout."""
        return open_message(message, self._manifest)

    def _drop_oldest_of(self, peer: str) -> None:
        row = self._database.row("SELECT envelope_id FROM inbox WHERE peer = ? ORDER BY rowid LIMIT 1", peer)
        if row:
            self._remove(row[0], peer)

    def _remove(self, envelope_id: bytes, peer: str) -> None:
        if self._database.execute("DELETE FROM inbox WHERE envelope_id = ?", envelope_id):
            self._held[peer] -= 1
            if not self._held[peer]:
                del self._held[peer]
