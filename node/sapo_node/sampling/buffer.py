"""Verified groups that wait to be drawn: bounded per peer and in total, durable, each handed out once.

A full pool drops what arrived first, whatever epoch and counter its issuer chose. Groups of strangers go before those
of peers with evidence, and these before those of friends: a stranger's keys are free.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from sapo_node.groups.types import GroupKey, VerifiedGroup
from sapo_node.sampling.sampler import NotDrawn
from sapo_node.storage.database import Database
from sapo_node.trust.constants import Tier
from sapo_node.trust.limits import LIMITS, Limits
from sapo_protocol import Completion, Finish

SCHEMA = """
CREATE TABLE IF NOT EXISTS pool (
    peer TEXT, epoch INTEGER, counter INTEGER, k INTEGER, dataset TEXT NOT NULL, question TEXT NOT NULL,
    completions TEXT NOT NULL, rewards TEXT NOT NULL, PRIMARY KEY (peer, epoch, counter, k)
) STRICT;
CREATE INDEX IF NOT EXISTS pool_age ON pool (epoch, counter, k);
"""

_FINISHES = {each.value: each for each in Finish}

_GIVES_WAY = (Tier.STRANGER, Tier.PROVEN, Tier.FRIEND)
"""The tiers in the order in which they give way."""

MAX_GROUPS, MAX_BYTES = 1_024, 2**26
"""Of all peers. Bytes are those of completions as they are stored, in JSON."""
MAX_PER_PEER, MAX_BYTES_PER_PEER = 64, 2**22
"""Of one peer."""

OnDropped = Callable[[Sequence[GroupKey], NotDrawn], None]


class Pool:
    """The verified groups of all peers."""

    def __init__(
        self,
        database: Database,
        *,
        tier: Callable[[str], Tier] = lambda _: Tier.STRANGER,
        limits: Limits = LIMITS,
        on_dropped: OnDropped = lambda _, __: None,
    ) -> None:
        """`tier(peer id)` is the tier of a peer now. `on_dropped` is called in the transaction that drops groups."""
        self._database = database
        self._tier = tier
        self._max_age = limits.max_age
        self._on_dropped = on_dropped
        self._read: dict[GroupKey, VerifiedGroup] = {}
        """Those that were there when they were last asked for: most wait for many rounds."""
        counted = database.rows("SELECT peer, count(*), sum(length(completions)) FROM pool GROUP BY peer")
        self._held: Counter[str] = Counter({peer: groups for peer, groups, _ in counted})
        self._bytes: Counter[str] = Counter({peer: size for peer, _, size in counted})

    def __len__(self) -> int:
        return self._held.total()

    def add(self, groups: Iterable[VerifiedGroup]) -> None:
        """Add groups. Those that arrived first make room: of the same peer, then of the lowest tier."""
        dropped: list[GroupKey] = []
        with self._database.transaction():
            for group in groups:
                completions = json.dumps([[each.text, each.finish] for each in group.completions])
                added = self._database.execute(
                    "INSERT OR IGNORE INTO pool VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    *group.place,
                    group.dataset,
                    group.prompt,
                    completions,
                    json.dumps(group.rewards),
                )
                if added:
                    self._read.pop(group.place, None)
                    self._held[group.peer] += 1
                    self._bytes[group.peer] += len(completions)
                while self._has_too_much(group.peer) and (first := self._drop_first(group.peer)):
                    dropped += first
            if self._is_full():
                dropped += self._trim()
            if dropped:
                self._on_dropped(dropped, NotDrawn.MADE_ROOM)

    def groups(self) -> list[VerifiedGroup]:
        """All groups, in a stable order."""
        places = self._database.rows("SELECT peer, epoch, counter, k FROM pool ORDER BY peer, epoch, counter, k")
        self._read = {place: self._read.get(place) or self._group(place) for place in places}
        return list(self._read.values())

    def per_peer(self) -> dict[str, int]:
        """How many groups of each peer wait."""
        return dict(self._held)

    def remove(self, places: Iterable[GroupKey]) -> None:
        """Hand groups out for good; call it in the transaction that stores the batch they go into, if they do."""
        for place in places:
            self._drop("peer = ? AND epoch = ? AND counter = ? AND k = ?", *place)

    def advance(self, epoch: int) -> None:
        """Enter an epoch: drop the groups that are too old to be trained on."""
        with self._database.transaction():
            if dropped := self._drop("epoch < ?", epoch - self._max_age):
                self._on_dropped(dropped, NotDrawn.TOO_OLD)

    def forget(self, peer: str, arriving: Iterable[VerifiedGroup] = ()) -> None:
        """Drop all groups of a peer that was banned, and those that were `arriving`."""
        with self._database.transaction():
            if dropped := [*self._drop("peer = ?", peer), *(group.place for group in arriving)]:
                self._on_dropped(dropped, NotDrawn.BANNED)

    def _group(self, place: GroupKey) -> VerifiedGroup:
        [(dataset, prompt, completions, rewards)] = self._database.rows(
            "SELECT dataset, question, completions, rewards FROM pool "
            "WHERE peer = ? AND epoch = ? AND counter = ? AND k = ?",
            *place,
        )
        with self._database.decoding():
            scored = zip(json.loads(completions), json.loads(rewards), strict=True)
            pairs = [(Completion(text, _FINISHES[finish]), bool(reward)) for (text, finish), reward in scored]
            texts, correct = zip(*pairs, strict=True)
            return VerifiedGroup(*place, dataset, prompt, texts, correct)

    def _has_too_much(self, peer: str) -> bool:
        return self._held[peer] > MAX_PER_PEER or self._bytes[peer] > MAX_BYTES_PER_PEER

    def _is_full(self) -> bool:
        return self._held.total() > MAX_GROUPS or self._bytes.total() > MAX_BYTES

    def _trim(self) -> list[GroupKey]:
        """Drop what is beyond MAX_GROUPS and MAX_BYTES."""
        arrived = self._database.rows("SELECT peer FROM pool ORDER BY rowid")
        arrived.sort(key=lambda row: _GIVES_WAY.index(self._tier(row[0])))
        dropped: list[GroupKey] = []
        for (peer,) in arrived:
            if not self._is_full():
                break
            dropped += self._drop_first(peer)
        return dropped

    def _drop_first(self, peer: str) -> list[GroupKey]:
        """Drop the group of a peer that arrived first."""
        return self._drop("rowid = (SELECT min(rowid) FROM pool WHERE peer = ?)", peer)

    def _drop(self, condition: str, *values: object) -> list[GroupKey]:
        """Drop the groups of a condition; their places."""
        columns = "peer, epoch, counter, k, length(completions)"
        gone = self._database.rows(f"DELETE FROM pool WHERE {condition} RETURNING {columns}", *values)  # noqa: S608 - ours
        for peer, *_, size in gone:
            self._held[peer] -= 1
            self._bytes[peer] -= size
            if not self._held[peer]:
                del self._held[peer], self._bytes[peer]
        return [(peer, epoch, counter, k) for peer, epoch, counter, k, _ in gone]
