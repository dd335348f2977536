"""Verified groups that wait to be drawn: bounded per peer and in total, durable, each handed out once."""

import json
from collections.abc import Iterable

from sapo_node.database import Database
from sapo_node.trust import policy
from sapo_node.verify import VerifiedGroup
from sapo_protocol import Completion, Finish

SCHEMA = """
CREATE TABLE IF NOT EXISTS pool (
    peer TEXT, epoch INTEGER, counter INTEGER, k INTEGER, dataset TEXT NOT NULL, question TEXT NOT NULL,
    completions TEXT NOT NULL, rewards TEXT NOT NULL, PRIMARY KEY (peer, epoch, counter, k)
);
"""

MAX_GROUPS = 1_024
MAX_PER_PEER = 64


class Pool:
    """The verified groups of all peers."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def __len__(self) -> int:
        row = self._database.row("SELECT count(*) FROM pool")
        return int(row[0]) if row else 0

    def add(self, groups: Iterable[VerifiedGroup]) -> None:
        """Add groups; the oldest of the same peer, then of all, make room."""
        with self._database.transaction():
            for group in groups:
                self._database.execute(
                    "INSERT OR IGNORE INTO pool VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    group.peer,
                    group.epoch,
                    group.counter,
                    group.k,
                    group.dataset,
                    group.question,
                    json.dumps([[each.text, each.finish] for each in group.completions]),
                    json.dumps(group.rewards),
                )
                self._trim("WHERE peer = ?", MAX_PER_PEER, group.peer)
            self._trim("", MAX_GROUPS)

    def groups(self) -> list[VerifiedGroup]:
        """All groups, in a stable order."""
        return [_group(row) for row in self._database.rows("SELECT * FROM pool ORDER BY peer, epoch, counter, k")]

    def per_peer(self) -> dict[str, int]:
        """How many groups of each peer wait."""
        return dict(self._database.rows("SELECT peer, count(*) FROM pool GROUP BY peer"))

    def remove(self, groups: Iterable[VerifiedGroup]) -> None:
        """Hand groups out for good; call it in the transaction that stores the batch they go into."""
        for group in groups:
            self._database.execute(
                "DELETE FROM pool WHERE peer = ? AND epoch = ? AND counter = ? AND k = ?",
                group.peer,
                group.epoch,
                group.counter,
                group.k,
            )

    def advance(self, epoch: int) -> None:
        """Enter an epoch: drop the groups that are too old to be trained on."""
        self._database.execute("DELETE FROM pool WHERE epoch < ?", epoch - policy.MAX_AGE)

    def forget(self, peer: str) -> None:
        """Drop all groups of a peer."""
        self._database.execute("DELETE FROM pool WHERE peer = ?", peer)

    def _trim(self, where: str, limit: int, *values: str) -> None:
        row = self._database.row(f"SELECT count(*) FROM pool {where}", *values)  # noqa: S608 - `where` is ours
        if row is None or row[0] <= limit:
            return
        self._database.execute(
            f"DELETE FROM pool WHERE rowid IN (SELECT rowid FROM pool {where} "  # noqa: S608 - `where` is ours
            "ORDER BY epoch DESC, counter DESC, k DESC LIMIT -1 OFFSET ?)",
            *values,
            limit,
        )


def _group(row: tuple[str, int, int, int, str, str, str, str]) -> VerifiedGroup:
    peer, epoch, counter, k, dataset, question, completions, rewards = row
    texts = tuple(Completion(text, Finish(finish)) for text, finish in json.loads(completions))
    return VerifiedGroup(peer, epoch, counter, k, dataset, question, texts, tuple(json.loads(rewards)))
