"""Rollouts that are signed and well-formed but not yet verified: bounded, and drawn by peer, never first-come.

Among peers of one state a peer is drawn at random and then the rollout of it that arrived last: a peer that sends
more is not verified more, and what is trained on is what its policy does by now. What overflows is the oldest of the
peer that holds most.
"""

import heapq
from collections import Counter

from sapo_node.storage.database import Database
from sapo_node.trust.defences import DEFENDED, Defences
from sapo_protocol import (
    Manifest,
    Rollout,
    encode_message,
    peer_id,
)

SCHEMA = """
CREATE TABLE IF NOT EXISTS inbox (
    envelope_id BLOB PRIMARY KEY, peer TEXT NOT NULL, epoch INTEGER NOT NULL, message BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS inbox_peer ON inbox (peer);
"""


class PendingQueue:
    """Rollouts that wait for verification."""

    def __init__(self, database: Database, manifest: Manifest, *, defences: Defences = DEFENDED) -> None:
        self._database = database
        self._manifest = manifest
        self._defences = defences
        self._recount()

    def __len__(self) -> int:
        return self._total

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
        if self._held[peer] >= self._defences.pending_per_peer:
            self._drop_oldest_of(peer)
        elif len(self) >= self._defences.pending_rollouts:
            self._drop_oldest_of(self._fullest())
        message = encode_message(rollout.opened.envelope, bodies)
        self._database.execute(
            "INSERT INTO inbox VALUES (?, ?, ?, ?)", envelope_id, peer, rollout.header.epoch, message
        )
        self._change(peer, 1)

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
        self._database.execute("DELETE FROM inbox WHERE epoch < ?", epoch - self._defences.max_age)
        self._recount()

    def forget(self, peer: str) -> None:
        """Drop all rollouts of a peer."""
        self._database.execute("DELETE FROM inbox WHERE peer = ?", peer)
        self._total -= self._held.pop(peer, 0)

    def _recount(self) -> None:
        self._held = Counter(dict(self._database.rows("SELECT peer, count(*) FROM inbox GROUP BY peer")))
        self._total = self._held.total()
        self._rank()

    def _rank(self) -> None:
        self._ranked: list[tuple[int, str]] = [(-count, peer) for peer, count in self._held.items()]
        heapq.heapify(self._ranked)

    def _change(self, peer: str, by: int) -> None:
        self._total += by
        self._held[peer] += by
        if not self._held[peer]:
            del self._held[peer]
            return
        heapq.heappush(self._ranked, (-self._held[peer], peer))
        if len(self._ranked) > 4 * self._defences.pending_rollouts:
            self._rank()

    def _fullest(self) -> str:
        """The peer that holds most. A heap has it at hand, where an entry whose count is no longer true is skipped."""
        while -self._ranked[0][0] != self._held.get(self._ranked[0][1]):
            heapq.heappop(self._ranked)
        return self._ranked[0][1]

    def _open(self, message: bytes) -> Rollout:
        """Stored bytes go through the same validator as received ones, so a damaged row cannot become a rollout."""
        return self._defences.open_message(message, self._manifest)

    def _drop_oldest_of(self, peer: str) -> None:
        row = self._database.row("SELECT envelope_id FROM inbox WHERE peer = ? ORDER BY rowid LIMIT 1", peer)
        if row:
            self._remove(row[0], peer)

    def _remove(self, envelope_id: bytes, peer: str) -> None:
        if self._database.execute("DELETE FROM inbox WHERE envelope_id = ?", envelope_id):
            self._change(peer, -1)
