"""Keeps verified groups of peers with the signed bytes, for an export. The oldest make room for new ones."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sapo_node.groups.types import GroupKey, VerifiedGroup
from sapo_node.storage.database import Database
from sapo_node.verification.verifier import Unusable
from sapo_protocol import Rollout

SCHEMA = """
CREATE TABLE IF NOT EXISTS archive (
    number INTEGER PRIMARY KEY, peer TEXT NOT NULL, epoch INTEGER NOT NULL, counter INTEGER NOT NULL,
    k INTEGER NOT NULL, dataset TEXT NOT NULL, question TEXT NOT NULL, rewards TEXT NOT NULL, envelope BLOB NOT NULL,
    body BLOB NOT NULL, at REAL NOT NULL, UNIQUE (peer, epoch, counter, k)
) STRICT;
"""

_SIZE = "length(envelope) + length(body) + length(CAST(question AS BLOB))"
"""Bytes of a row. SQLite counts characters of a text, and stops at the first NUL."""
_READ_ROWS = 256


@dataclass(frozen=True, slots=True)
class ArchivedGroup:
    """One verified group, and what its issuer signed."""

    peer: str
    epoch: int
    counter: int
    k: int
    dataset: str
    prompt: str
    rewards: tuple[bool, ...]
    envelope: bytes
    """The signed envelope of the whole round."""
    body: bytes
    """The encoded completions of this group. The envelope holds their hash."""

    @property
    def place(self) -> GroupKey:
        """What names the group."""
        return (self.peer, self.epoch, self.counter, self.k)


class Archive:
    """Holds at most so many bytes in the database of a node."""

    def __init__(self, database: Database, max_bytes: int, *, now: Callable[[], float] = time.time) -> None:
        self._database = database
        self._max_bytes = max_bytes
        self._now = now
        [(self._bytes,)] = database.rows(f"SELECT coalesce(sum({_SIZE}), 0) FROM archive")  # noqa: S608 - ours

    def verified_or_unusable(self, rollout: Rollout, k: int, finding: VerifiedGroup | Unusable) -> None:
        """Keep group `k` of a rollout if it was verified."""
        body = rollout.bodies[k]
        if not isinstance(finding, VerifiedGroup) or body is None:
            return
        envelope = rollout.opened.envelope
        with self._database.transaction():
            added = self._database.execute(
                "INSERT OR IGNORE INTO archive "
                "(peer, epoch, counter, k, dataset, question, rewards, envelope, body, at) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                *(*finding.place, finding.dataset, finding.prompt, json.dumps(finding.rewards)),
                *(envelope, body, self._now()),
            )
            self._bytes += added * (len(envelope) + len(body) + len(finding.prompt.encode()))
            while self._bytes > self._max_bytes:
                oldest = self._database.row(
                    f"SELECT number, {_SIZE} FROM archive ORDER BY number LIMIT 1"  # noqa: S608 - ours
                )
                number, size = oldest or (None, self._bytes)  # without rows there are no bytes
                self._database.execute("DELETE FROM archive WHERE number = ?", number)
                self._bytes -= size


def archived(database: Database) -> Iterator[ArchivedGroup]:
    """The groups, oldest first."""
    last = 0
    while rows := database.rows(
        "SELECT number, peer, epoch, counter, k, dataset, question, rewards, envelope, body FROM archive "
        "WHERE number > ? ORDER BY number LIMIT ?",
        *(last, _READ_ROWS),
    ):
        for last, peer, epoch, counter, k, dataset, prompt, rewards, envelope, body in rows:  # noqa: B007 - see above
            with database.decoding():
                correct = tuple(map(bool, json.loads(rewards)))
            yield ArchivedGroup(peer, epoch, counter, k, dataset, prompt, correct, envelope, body)
