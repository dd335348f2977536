"""Peers that subscribe to a part of the shards, and find other subscribers by the rules of nodes.

All peers change shards at once, as at the start of an epoch. Each asks the peers that it dialled, one at a time, for
connected peers that subscribe to what it lacks. A named peer is always there, and dialling takes no time.
"""

import heapq
import random
from dataclasses import dataclass
from math import inf

from research.gossip_cost.overlay import Peer, links
from sapo_node.ingest.sync import HURRIED_INTERVAL
from sapo_node.net.dialer import ENOUGH, MOST
from sapo_node.net.host import CONNECTIONS
from sapo_node.net.interface import TARGET_PEERS
from sapo_node.net.settings import NAMED, RESERVED_OUTBOUND
from sapo_protocol.limits import MAX_PX_PEERS

PATIENCE_SECONDS = 600.0
_CHANGES = 2
"""The first begins with whom everybody dialled on joining, the second with whom they found in the first."""


@dataclass(slots=True)
class Seeker:
    """One peer: the peers that it dialled, its connections and its shards."""

    dialled: set[int]
    connected: set[int]
    follows: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Parted:
    """A swarm whose peers subscribe to a part of the shards each, after all of them found peers."""

    seekers: list[Seeker]
    seconds: tuple[float, ...]
    """Until each had company on all that it follows, ascending; infinite for one that found none in time."""

    def followers(self, shard: int) -> list[Peer]:
        """The subscribers of a shard, with the connections among them."""
        places = [place for place, seeker in enumerate(self.seekers) if shard in seeker.follows]
        numbers = {place: number for number, place in enumerate(places)}

        def known(others: set[int]) -> set[int]:
            return {numbers[other] for other in others if other in numbers}

        return [Peer(known(self.seekers[each].dialled), known(self.seekers[each].connected)) for each in places]


def parted(count: int, *, shards: int, heard: int, rng: random.Random) -> Parted:
    """A swarm of peers that subscribe to `heard` of the shards each, drawn anew."""
    seekers = [Seeker(each.dialled, each.connected) for each in links(count, rng)]
    for _ in range(_CHANGES):
        for seeker in seekers:
            seeker.follows = frozenset(rng.sample(range(shards), heard))
        for number in range(count):
            _leave_idle(seekers, number)
        seconds = _search(seekers, rng)
    return Parted(seekers, tuple(sorted(seconds)))


def _search(seekers: list[Seeker], rng: random.Random) -> list[float]:
    """Let every peer ask until it lacks no peers; returns the seconds after which that is."""
    found = []
    turns = [(rng.uniform(0, HURRIED_INTERVAL), number) for number in range(len(seekers))]
    heapq.heapify(turns)
    while turns:
        now, number = heapq.heappop(turns)
        sought = _sought(seekers, number)
        if not sought or now > PATIENCE_SECONDS:
            found.append(inf if sought else now)
            continue
        if dialled := sorted(seekers[number].dialled):
            _meet(seekers, number, rng.choice(dialled), sought, rng)
        heapq.heappush(turns, (now + rng.uniform(0.5, 1.5) * HURRIED_INTERVAL, number))
    return found


def _sought(seekers: list[Seeker], number: int) -> set[int]:
    """The shards for which a peer lacks connections."""
    here = seekers[number]
    known = [seekers[other].follows for other in here.connected]
    return {shard for shard in here.follows if sum(shard in each for each in known) < TARGET_PEERS}


def _meet(seekers: list[Seeker], number: int, asked: int, sought: set[int], rng: random.Random) -> None:
    """Ask a peer, and dial the peers that it names."""
    here = seekers[number]
    met = sorted(seekers[asked].connected - {number})
    useful = [other for other in met if seekers[other].follows & sought]
    named = rng.sample(useful, min(len(useful), MAX_PX_PEERS))
    news = [other for other in named if other not in here.connected] or rng.sample(met, min(len(met), 1))
    for other in news[:NAMED]:
        if len(here.dialled) < MOST and len(seekers[other].connected) < CONNECTIONS - RESERVED_OUTBOUND:
            here.dialled.add(other)
            here.connected.add(other)
            seekers[other].connected.add(number)


def _leave_idle(seekers: list[Seeker], number: int) -> None:
    """Drop dialled connections beyond what is enough, of peers that share no shard with this peer."""
    here = seekers[number]
    idle = [other for other in sorted(here.dialled) if not seekers[other].follows & here.follows]
    for other in idle[: max(0, len(here.dialled) - ENOUGH)]:
        here.dialled.discard(other)
        here.connected.discard(other)
        seekers[other].connected.discard(number)
        seekers[other].dialled.discard(number)
