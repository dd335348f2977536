"""Draws the rollout that is verified next, and the one that gives way: a lottery, never first-come.

Each tier has places of its own (PENDING_PLACES), so that strangers never take those of a friend. A rollout takes one
place for each PLACE_BYTES of its message that it begins, so that the places bound the disk. Inside a tier the lottery
charges the link. That is the issuer if it is connected, whichever peer brought its rollout. Else a flood that a
neighbour forwards would take the turns of the other rollouts that the neighbour brings. For an issuer that is not
connected, the link is the peer that brought its rollout. Keys cost nothing, and a link does. If the bodies of such a
rollout came in several messages, its link is the peer that brought the last bodies. Else a peer that forwards bare
envelopes faster than other peers forward whole messages would have their rollouts on its link.

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

The lottery counts places and draws names, in memory. `Book` holds the rollouts.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

from sapo_node.processes.bounded import Bounded
from sapo_node.trust.constants import Tier
from sapo_node.trust.limits import LIMITS, Limits

_CREDIT_TURNS = 0.5
"""Part of the turns of what a link forwards that are for issuers with credit."""
_MOST_CREDIT = 4
"""Turns without a group after which an issuer has no credit left, at most. An honest peer that begins to learn has
several in a row."""
PLACE_BYTES = 2**16
"""Bytes of a message for each of its places."""
ENDED_LINK = ""
"""The link of all rollouts whose link has ended; at a start of the node that is each."""


def places_of(size: int) -> int:
    """Return the number of places that a message of `size` bytes takes."""
    return -(-size // PLACE_BYTES)


class _Places:
    """The number of places that each name holds, with fast access to the names that hold most."""

    def __init__(self) -> None:
        self.total = 0
        self._held: dict[str, int] = {}
        self._names: defaultdict[int, dict[str, None]] = defaultdict(dict)
        """The names by the number of places that they hold."""
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
        """A name that holds most beyond its credit, at random among equals. The name `last` only if there is no
        other.
        """
        beyond = {name: self[name] - credit[name] for name in credit if self[name] and name != last}
        for held in range(self._most, -_MOST_CREDIT, -1):
            names = [name for name in self._names.get(held, ()) if name != last and name not in beyond]
            if names := [*names, *(name for name, over in beyond.items() if over == held)]:
                return rng.choice(names)
        return last or ""


class Lottery:
    """The places of each link and issuer, and the draw of the next turn."""

    def __init__(self, rng: random.Random, limits: Limits = LIMITS) -> None:
        self._rng = rng
        self._limits = limits
        self._credit: Bounded[str, int] = Bounded(limits.pending_places)
        """The issuers that have credit, the latest last."""
        self._blocks: dict[str, str] = {}
        """By link, the address block that it shares its turns with."""
        self.clear()

    def clear(self) -> None:
        """Forget all places, and keep credit and links."""
        self._peers = _Places()
        self._links: defaultdict[str, _Places] = defaultdict(_Places)
        """By tier, the links by which its rollouts came."""
        self._issuers: defaultdict[tuple[str, str], _Places] = defaultdict(_Places)
        """By tier and link, the peers that signed them."""

    def change(self, tier: str, link: str, peer: str, places: int) -> None:
        """Add `places` places of a tier to a peer and a link; a negative number frees places."""
        self._peers.change(peer, places)
        self._links[tier].change(link, places)
        self._issuers[tier, link].change(peer, places)
        if not self._issuers[tier, link].total:
            del self._issuers[tier, link]

    def is_peer_full(self, peer: str, places: int) -> bool:
        """Return whether a peer that holds places has no room for this many more."""
        return bool(self._peers[peer]) and self._peers[peer] + places > self._limits.pending_per_peer

    def is_tier_full(self, tier: Tier, places: int) -> bool:
        """Return whether a tier that holds places has no room for this many more."""
        held = self._links[tier].total
        return bool(held) and held + places > self._limits.pending_places

    def gives_way(self, tier: Tier) -> tuple[str, str]:
        """The link and the issuer whose oldest rollout a full tier drops."""
        link = self._links[tier].fullest(self._rng)
        return link, self._issuers[tier, link].fullest(self._rng, credit=self._credit, last=link)

    def holds(self, link: str) -> bool:
        """Return whether rollouts that came by a link wait."""
        return any(links[link] for links in self._links.values())

    def draw(self, tier: Tier, *, last: Callable[[str], bool] = lambda _: False) -> tuple[str, str] | None:
        """The link and the issuer whose newest rollout has the next turn of a tier; None if none waits.

        Issuers for which `last(peer id)` is true are drawn when no other waits in the tier.
        """
        waiting = {link: list(self._issuers[tier, link]) for link in self._links[tier]}
        first = {link: [peer for peer in issuers if not last(peer)] for link, issuers in waiting.items()}
        chosen = {link: issuers for link, issuers in first.items() if issuers} or waiting
        if not chosen:
            return None
        link = self._rng.choice(list(chosen) if tier is Tier.FRIEND else self._of_one_block(list(chosen)))
        return link, link if link in chosen[link] else self._forwarded(chosen[link])

    def credit(self, peer: str, groups: int) -> None:
        """Note that a turn verified bodies of a peer, which gave `groups` groups."""
        credit = self._credit.pop(peer, 0) + (groups or -1)
        if credit > 0:
            self._credit[peer] = min(credit, _MOST_CREDIT)

    def begin_link(self, link: str, block: str) -> None:
        """Note the address block of a peer that has connected; empty if the peer shares turns with no other."""
        if block:
            self._blocks[link] = block

    def end_link(self, link: str) -> None:
        """Note that a peer has disconnected."""
        self._blocks.pop(link, None)

    def _forwarded(self, issuers: list[str]) -> str:
        """Return the issuer that gets the turn of a link."""
        if self._rng.random() < _CREDIT_TURNS:
            issuers = [peer for peer in issuers if peer in self._credit] or issuers
        return self._rng.choice(issuers)

    def _of_one_block(self, links: list[str]) -> list[str]:
        """Draw an address block, and return its links."""
        blocks: defaultdict[str, list[str]] = defaultdict(list)
        for link in links:
            blocks[self._blocks.get(link, link)].append(link)
        return self._rng.choice(list(blocks.values())) if len(blocks) < len(links) else links
