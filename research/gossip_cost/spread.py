"""The way of one message through a mesh: which peer has it when, and how many copies are sent."""

import heapq
import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from research.gossip_cost.overlay import Peer
from sapo_node.gossip.machine import OFFERED_PEERS as OFFERED
from sapo_node.gossip.recent import OFFERED_BEATS as WINDOW

HEARTBEAT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Wire:
    """The network between peers. The delays of links are log-normal, one for each pair and the same in both
    directions.
    """

    delay: float = 0.05
    """Median seconds in one direction."""
    spread: float = 0.5
    """Standard deviation of their logarithm."""
    loss: float = 0.01
    """Share of copies that do not arrive: full queues, which drop without a word."""
    upload: float = 2.5e6
    """Bytes a second that a peer can send."""
    handling: float = 0.0
    """Seconds until a peer that has a message passes it on."""


@dataclass(frozen=True, slots=True)
class Way:
    """The result of one message."""

    times: tuple[float, ...]
    """Seconds until each peer that it reached had it, ascending; the author is not counted."""
    copies: int
    """That arrived, of the whole message."""
    asked: int
    """Copies that a peer requested after it was offered the message."""
    hops: float
    """Links between the author and a peer that it reached, on the way of the first copy; the mean."""


def send(peers: Sequence[Peer], author: int, size: int, wire: Wire, rng: random.Random) -> Way:
    """Send a message of `size` bytes from one peer to all, while nothing else is under way."""
    seed = rng.random()
    order = itertools.count()
    has: dict[int, float] = {author: 0.0}
    hops = {author: 0}
    arrivals: list[tuple[float, int, int, int, bool]] = []
    copies = asked = 0
    wanted: set[int] = set()

    def delay(one: int, other: int) -> float:
        pair = random.Random(f"{seed}/{min(one, other)}/{max(one, other)}")  # noqa: S311 - simulation
        return wire.delay * math.exp(wire.spread * pair.gauss(0, 1))

    def give(sender: int, others: Sequence[int], at: float) -> None:
        for place, other in enumerate(others, start=1):
            if rng.random() >= wire.loss:
                leaves = at + place * size / wire.upload
                heapq.heappush(arrivals, (leaves + delay(sender, other), next(order), sender, other, False))

    def offer(sender: int, at: float) -> None:
        """At the heartbeats to come, to peers outside of the mesh."""
        here = peers[sender]
        others = sorted(here.connected - here.mesh)
        heartbeat = at + rng.random() * HEARTBEAT_SECONDS
        for _ in range(WINDOW):
            for other in rng.sample(others, min(len(others), max(OFFERED, len(others) // 4))):
                heapq.heappush(arrivals, (heartbeat + delay(sender, other), next(order), sender, other, True))
            heartbeat += HEARTBEAT_SECONDS

    give(author, rng.sample(sorted(peers[author].connected), len(peers[author].connected)), 0.0)
    offer(author, 0.0)
    while arrivals:
        at, _, sender, other, is_offer = heapq.heappop(arrivals)
        if is_offer:
            if other not in has and other not in wanted:
                wanted.add(other)
                asked += 1
                arrives = at + 2 * delay(sender, other) + size / wire.upload
                heapq.heappush(arrivals, (arrives, next(order), sender, other, False))
            continue
        copies += 1
        if other in has:
            continue
        has[other] = at
        hops[other] = hops[sender] + 1
        mesh = peers[other].mesh - {sender}
        give(other, rng.sample(sorted(mesh), len(mesh)), at + wire.handling)
        offer(other, at + wire.handling)
    del has[author]
    return Way(tuple(sorted(has.values())), copies, asked, fmean(hops[each] for each in has) if has else 0.0)
