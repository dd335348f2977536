"""Rollouts that are signed and well-formed but not yet verified: bounded, and drawn by lottery, never first-come.

Each tier has places of its own (PENDING_PLACES), so that strangers never take those of a friend. A rollout takes one
place for each PLACE_BYTES of its message that it begins, so that the places bound the disk. Inside a tier the queue
charges the link. That is the issuer where it is connected, whoever brought its rollout. Else a flood that a
neighbour forwards would take the turns of what the neighbour brings of others. For an issuer that is not connected, the
link is the peer that brought its rollout. Keys cost nothing, and a link does. If the bodies of such a rollout came in
several messages, its link is the peer that brought the last bodies. Else a peer that forwards bare envelopes faster
than other peers forward whole messages would have their rollouts on its link.

- All links that have ended are one. Else a peer that connects again and again under fresh keys would be as many links.
- A full tier drops the oldest rollout of the issuer that holds most places on the link that holds most. What the peer
  of that link signed is dropped last. Else many keys with one rollout each, forwarded by an honest neighbour, would
  push out the second rollout of the neighbour. They still push out that of a newcomer farther away, if it came by that
  link.
- An issuer has credit for what it gave: a verified group adds one, and a turn without a group costs one.
  As many of its places as it has credit do not count among those that it holds.
- A draw takes an address block at random, a link of this block, then the issuer whose own link it is, or else an issuer
  at random. So a flood that an honest neighbour forwards does not take the turns of what the neighbour signs itself.
  Half of the time only issuers with credit count. Else a flood under fresh keys would take nearly all turns of the
  honest peers farther away. The other half is for newcomers.
- A machine opens any number of connections, and its addresses are in one block or few. So the peers of one block of the
  Internet are drawn as one, also those that the node dialled: a peer that dials in, announces its address and hangs up
  is dialled back. A bootstrap peer is drawn alone, since the operator chose it, and so is each friend.
- Of the issuer it takes the rollout that arrived last: what is trained on is what its policy does by now.
- A draw takes at most TURN_GROUPS bodies of a rollout, chosen at random. The others wait for another turn. Else a link
  whose rollouts have sixteen groups would have four times as many groups as a link whose rollouts have four.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from sapo_node.ingest.store import together
from sapo_node.ingest.wire import WIRE, Wire
from sapo_node.storage.database import Database
from sapo_node.trust.constants import Tier
from sapo_node.trust.limits import LIMITS, Limits
from sapo_protocol import (
    Manifest,
    Rollout,
    encode_message,
    peer_id,
)

SCHEMA = """
CREATE TABLE IF NOT EXISTS inbox (
    envelope_id BLOB PRIMARY KEY, peer TEXT NOT NULL, epoch INTEGER NOT NULL, message BLOB NOT NULL,
    link TEXT NOT NULL DEFAULT '', tier TEXT NOT NULL DEFAULT 'stranger'
) STRICT;
CREATE INDEX IF NOT EXISTS inbox_peer ON inbox (peer);
"""

_CREDIT_TURNS = 0.5
"""Part of the turns of what a link forwards that are for issuers with credit."""
_MOST_CREDIT = 4
"""Turns without a group after which an issuer has no credit left, at most. An honest peer that begins to learn has
several in a row."""
PLACE_BYTES = 2**16
"""Bytes of a message for each of its places in the queue."""
ENDED_LINK = ""
"""The link of all rollouts whose link has ended; at a start of the node that is each."""


class _Counts:
    """How many places each name holds, and at hand the names that hold most."""

    def __init__(self) -> None:
        self.total = 0
        self._held: dict[str, int] = {}
        self._names: defaultdict[int, dict[str, None]] = defaultdict(dict)
        """Those that hold a number of places, by that number."""
        self._most = 0

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __getitem__(self, name: str) -> int:
        return self._held.get(name, 0)

    def change(self, name: str, by: int) -> None:
        before = self._held.pop(name, 0)
        self._names[before].pop(name, None)
        self.total += by
        if before + by:
            self._held[name] = before + by
            self._names[before + by][name] = None
        self._most = max(self._most, before + by)
        while self._most and not self._names[self._most]:
            del self._names[self._most]
            self._most -= 1

    def fullest(self, rng: random.Random, *, credit: Mapping[str, int] = {}, last: str | None = None) -> str:
        """A name that holds most beyond its credit, at random among equals. The name `last` only where there is no
        other.
        """
        beyond = {name: self[name] - credit[name] for name in credit if self[name] and name != last}
        for held in range(self._most, -_MOST_CREDIT, -1):
            names = [name for name in self._names.get(held, ()) if name != last and name not in beyond]
            if names := [*names, *(name for name, over in beyond.items() if over == held)]:
                return rng.choice(names)
        return last or ""


class PendingQueue:
    """Rollouts that wait for verification."""

    def __init__(
        self,
        database: Database,
        manifest: Manifest,
        *,
        rng: random.Random,
        limits: Limits = LIMITS,
        wire: Wire = WIRE,
    ) -> None:
        self._database = database
        self._manifest = manifest
        self._rng = rng
        self._limits = limits
        self._wire = wire
        self._credit: dict[str, int] = {}
        """Of the issuers that have credit, the latest last."""
        self._blocks: dict[str, str] = {}
        """By link, the address block that it shares its turns with."""
        database.execute("UPDATE inbox SET link = ?", ENDED_LINK)
        self._recount()

    def __len__(self) -> int:
        return int(self._database.rows("SELECT count(*) FROM inbox")[0][0])

    def put(self, rollout: Rollout, *, link: str, tier: Tier) -> None:
        """Add a rollout that is charged to a link (a peer id), or bodies to one that still waits; make room where there
        is none.
        """
        peer, envelope_id, bodies = peer_id(rollout.opened.issuer), rollout.opened.envelope_id, rollout.bodies
        envelope, most = rollout.opened.envelope, self._manifest.max_message_bytes
        if waiting := self._take("envelope_id = ?", envelope_id):
            bodies = together(envelope, bodies, self._open(waiting).bodies, most=most)
        message = encode_message(envelope, bodies)
        places = _places(len(message))
        while self._peers[peer] and self._peers[peer] + places > self._limits.pending_per_peer:
            self._take("peer = ? ORDER BY rowid", peer)
        while self._links[tier].total and self._links[tier].total + places > self._limits.pending_places:
            fullest = self._links[tier].fullest(self._rng)
            issuer = self._issuers[tier, fullest].fullest(self._rng, credit=self._credit, last=fullest)
            self._take("peer = ? AND link = ? AND tier = ? ORDER BY rowid", issuer, fullest, tier)
        self._database.execute(
            "INSERT INTO inbox VALUES (?, ?, ?, ?, ?, ?)", envelope_id, peer, rollout.header.epoch, message, link, tier
        )
        self._change(tier, link, peer, places)

    def draw(self, tier: Tier, *, last: Callable[[str], bool] = lambda _: False) -> Rollout | None:
        """Take out what one turn verifies of a rollout of a tier, by lottery; None when there is none.

        Rollouts of issuers for which `last(peer id)` is true are drawn when no other waits in the tier.
        """
        waiting = {link: list(self._issuers[tier, link]) for link in self._links[tier]}
        first = {link: [peer for peer in issuers if not last(peer)] for link, issuers in waiting.items()}
        chosen = {link: issuers for link, issuers in first.items() if issuers} or waiting
        if not chosen:
            return None
        link = self._rng.choice(list(chosen) if tier is Tier.FRIEND else self._of_one_block(list(chosen)))
        peer = link if link in chosen[link] else self._forwarded(chosen[link])
        message = self._take("peer = ? AND link = ? AND tier = ? ORDER BY rowid DESC", peer, link, tier)
        return self._part(self._open(message), link=link, tier=tier) if message else None

    def waits(self, envelope_id: bytes) -> bool:
        """Whether bodies of an envelope wait."""
        return bool(self._database.rows("SELECT 1 FROM inbox WHERE envelope_id = ?", envelope_id))

    def _part(self, rollout: Rollout, *, link: str, tier: Tier) -> Rollout:
        """The bodies of a rollout that one turn takes. The others wait again, in places that the rollout had."""
        there = [k for k, body in enumerate(rollout.bodies) if body is not None]
        if len(there) <= self._limits.turn_groups:
            return rollout
        taken = set(self._rng.sample(there, self._limits.turn_groups))
        left = tuple(None if k in taken else body for k, body in enumerate(rollout.bodies))
        self.put(replace(rollout, bodies=left), link=link, tier=tier)
        return replace(rollout, bodies=tuple(body if k in taken else None for k, body in enumerate(rollout.bodies)))

    def credit(self, peer: str, groups: int) -> None:
        """A turn verified bodies of a peer and gave so many groups. The peers that had credit first are forgotten, so
        that there are no more of them than places.
        """
        credit = self._credit.pop(peer, 0) + (groups or -1)
        if credit > 0:
            self._credit[peer] = min(credit, _MOST_CREDIT)
        if len(self._credit) > self._limits.pending_places:
            del self._credit[next(iter(self._credit))]

    def _forwarded(self, issuers: list[str]) -> str:
        """Which of the issuers behind a link has the turn of the link."""
        if self._rng.random() < _CREDIT_TURNS:
            issuers = [peer for peer in issuers if peer in self._credit] or issuers
        return self._rng.choice(issuers)

    def _of_one_block(self, links: list[str]) -> list[str]:
        """Those of the links that share an address block drawn at random."""
        blocks: defaultdict[str, list[str]] = defaultdict(list)
        for link in links:
            blocks[self._blocks.get(link, link)].append(link)
        return self._rng.choice(list(blocks.values())) if len(blocks) < len(links) else links

    def begin_link(self, link: str, block: str) -> None:
        """A peer has connected from an address block; empty where its turns are its own."""
        if block:
            self._blocks[link] = block

    def end_link(self, link: str) -> None:
        """A peer has disconnected: what it brought waits with what other ended links brought."""
        self._blocks.pop(link, None)
        if any(links[link] for links in self._links.values()):
            moved = "UPDATE inbox SET link = ? WHERE link = ? RETURNING tier, peer, length(message)"
            for tier, peer, size in self._database.rows(moved, ENDED_LINK, link):
                self._change(tier, link, peer, -_places(size))
                self._change(tier, ENDED_LINK, peer, _places(size))

    def advance(self, epoch: int) -> None:
        """Enter an epoch: drop the rollouts that are too old to be trained on."""
        self._database.execute("DELETE FROM inbox WHERE epoch < ?", epoch - self._limits.max_age)
        self._recount()

    def forget(self, peer: str) -> None:
        """Drop all rollouts of a peer."""
        gone = "DELETE FROM inbox WHERE peer = ? RETURNING tier, link, length(message)"
        for tier, link, size in self._database.rows(gone, peer):
            self._change(tier, link, peer, -_places(size))

    def _recount(self) -> None:
        self._peers = _Counts()
        self._links: defaultdict[str, _Counts] = defaultdict(_Counts)
        """By tier, the links by which its rollouts came."""
        self._issuers: defaultdict[tuple[str, str], _Counts] = defaultdict(_Counts)
        """By tier and link, the peers that signed them."""
        for tier, link, peer, size in self._database.rows("SELECT tier, link, peer, length(message) FROM inbox"):
            self._change(tier, link, peer, _places(size))

    def _change(self, tier: str, link: str, peer: str, by: int) -> None:
        self._peers.change(peer, by)
        self._links[tier].change(link, by)
        self._issuers[tier, link].change(peer, by)
        if not self._issuers[tier, link].total:
            del self._issuers[tier, link]

    def _open(self, message: bytes) -> Rollout:
        """Stored bytes go through the same validator as received ones, so a damaged row cannot become a rollout."""
        with self._database.decoding():
            return self._wire.open_message(message, self._manifest)

    def _take(self, order: str, *values: Any) -> bytes | None:
        """Take out the first rollout in an order; its message."""
        taken = self._database.row(
            f"DELETE FROM inbox WHERE rowid IN (SELECT rowid FROM inbox WHERE {order} LIMIT 1) "  # noqa: S608 - ours
            "RETURNING tier, link, peer, message",
            *values,
        )
        if taken is None:
            return None
        message: bytes
        tier, link, peer, message = taken
        self._change(tier, link, peer, -_places(len(message)))
        return message


def _places(size: int) -> int:
    """How many places a message of so many bytes takes."""
    return -(-size // PLACE_BYTES)
