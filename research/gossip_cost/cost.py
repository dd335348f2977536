"""The cost of gossip for one node in swarms of different sizes, with one topic and with several."""

import random
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from math import isfinite
from statistics import fmean
from typing import Any

from research.gossip_cost.company import parted
from research.gossip_cost.overlay import Peer, overlay, settled
from research.gossip_cost.spread import HEARTBEAT_SECONDS, Way, Wire, send
from sapo_node.gossip.machine import OFFERED_PEERS as OFFERED
from sapo_node.gossip.recent import OFFERED_BEATS as WINDOW
from sapo_node.gossip.rpc import OFFERED_IDS
from sapo_node.ingest.publication import PublishByNeed
from sapo_node.ingest.shards import affordable_shards
from sapo_protocol import load_manifest

MESSAGES = 20
"""Sent by as many peers; what is counted of them are means."""
_EPOCHS, _ROUNDS = 16, 64
"""Until peers have chosen the rounds that they publish; rounds of each epoch."""
_LEAST = 1e-3
"""Of a core or a line, what is left where there is nothing left."""
ID_BYTES = 34
"""Bytes of each id in an offer."""
GROUPS = 4
"""Of a rollout."""
BARE_BYTES = 800
"""A rollout of four groups without bodies (536), with what GossipSub and the stream add."""
DRAWN = 32
"""Groups whose bodies a node fetches in a round, at most: two for each that it trains on."""


@dataclass(frozen=True, slots=True)
class Work:
    """CPU seconds of a node per message, as measured (docs/operate/load.md)."""

    kilobytes: int
    first: float
    """With all checks, and passing it on to one peer."""
    received: float
    """For every further copy that comes."""
    sent: float
    """For every further copy that goes."""


_WORKS = (
    Work(4, 2.0e-3, 0.98e-3, 0.35e-3),
    Work(32, 2.2e-3, 1.02e-3, 0.24e-3),
    Work(128, 4.0e-3, 1.45e-3, 0.83e-3),
)
MEASURED = {each.kilobytes: each for each in _WORKS}


@dataclass(frozen=True, slots=True)
class Swarm:
    """A number of peers, each of which sends one message in each of its rounds."""

    peers: int
    round_seconds: float
    kilobytes: int
    megabits: float = 100.0
    """A second that each can send."""
    shards: int = 1
    """Topics over which messages are spread."""
    fetches: bool = False
    """True if messages have no bodies, and nodes fetch those of the groups that they verify."""
    interval: int = 1
    """Rounds of which a peer publishes one."""

    @property
    def heard(self) -> int:
        """The number of shards to which a node subscribes."""
        return affordable_shards(self.peers / self.shards / self.round_seconds / self.interval, self.shards)

    @property
    def rate(self) -> float:
        """Messages per second that a node receives."""
        return self.peers * self.heard / self.shards / self.round_seconds / self.interval

    def by_need(self, listeners: float) -> "Swarm":
        """The swarm after its peers chose the rounds that they publish. Each has so many connected peers on its topic,
        which request what they verify (`sapo_node.ingest.publication`).
        """
        chooses, swarm = PublishByNeed(load_manifest("starter"), bytes(32)), self
        for epoch in range(_EPOCHS):
            swarm = replace(self, interval=chooses.interval)
            requests = min(1.0, DRAWN / (GROUPS * swarm.rate * swarm.round_seconds)) * listeners
            published = [counter for counter in range(_ROUNDS) if chooses.is_due(epoch, counter, GROUPS)]
            for _ in published:
                chooses.published(GROUPS, whole=False)
            chooses.requested(round(requests * GROUPS * len(published)))
        return swarm


def measure(swarm: Swarm, *, seed: int, done: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """The bytes and CPU seconds of a node per second, and the seconds until peers have a message."""
    work = MEASURED[min(MEASURED) if swarm.fetches else swarm.kilobytes]
    size = BARE_BYTES if swarm.fetches else swarm.kilobytes * 1024
    rng = random.Random(f"{seed}/{swarm.peers}/{swarm.shards}")  # noqa: S311 - simulation
    peers, links, company = _mesh(swarm, rng)
    upload = swarm.megabits * 1e6 / 8
    wire = Wire(upload=upload, handling=work.first)
    ways: list[Way] = []
    for place in range(1 + MESSAGES):
        way = send(peers, rng.randrange(len(peers)), size, wire, rng)
        if place:
            ways.append(way)
        else:  # it tells how busy nodes and lines are, and so how long a message waits for its turn
            copies = way.copies / (len(peers) - 1)
            busy, full = _busy(swarm, work, copies), swarm.rate * copies * size / upload
            waits = busy / (2 * max(_LEAST, 1 - busy))
            wire = Wire(upload=upload * max(_LEAST, 1 - full), handling=(1 + waits) * work.first)
        done()
    copies = fmean(way.copies for way in ways) / (len(peers) - 1)
    connected = fmean(len(peer.connected) for peer in peers)
    bodies = _bodies(swarm, fmean(way.hops for way in ways)) if swarm.fetches else 0.0
    busy, sent = _busy(swarm, work, copies), swarm.rate * copies * size + bodies
    mesh = fmean(len(peer.mesh) for peer in peers)
    others = connected - mesh
    offers = min(others, max(OFFERED, others / 4)) * swarm.heard
    ids = min(OFFERED_IDS, WINDOW * HEARTBEAT_SECONDS * swarm.rate / swarm.heard)
    keeps_up = busy < 1 and sent < upload
    return {
        **asdict(swarm),
        "heard": swarm.heard,
        "listeners": len(peers),
        "mesh": round(mesh, 2),
        "connections": round(links, 1),
        "connected_on_topic": round(connected, 1),
        "hops": round(fmean(way.hops for way in ways), 2),
        "body_bytes_per_second": round(bodies),
        "seconds_to_company": company,
        "messages_per_second": round(swarm.rate, 2),
        "copies": round(copies, 2),
        "bytes_per_second": round(sent),
        "offer_bytes_per_second": round(offers * ids * ID_BYTES / HEARTBEAT_SECONDS),
        "cpu": round(busy, 3),
        "upload": round(sent / upload, 3),
        "reached": round(fmean(len(way.times) for way in ways) / (len(peers) - 1), 5),
        "asked": round(fmean(way.asked / (len(peers) - 1) for way in ways), 4),
        # A node that cannot keep up falls ever further behind: no time says anything then.
        "seconds_to_half": round(fmean(_until(way, 0.5, len(peers)) for way in ways), 2) if keeps_up else None,
        "seconds_to_99": round(fmean(_until(way, 0.99, len(peers)) for way in ways), 2) if keeps_up else None,
    }


def _mesh(swarm: Swarm, rng: random.Random) -> tuple[list[Peer], float, float | None]:
    """The listeners of one topic in their mesh; mean connections of all peers, over all topics; and the seconds after
    which 99 % of them have company on what they follow. There are no seconds where they follow all, or where more than
    1 % find no company in time.
    """
    if swarm.heard == swarm.shards:
        peers = overlay(swarm.peers, rng)
        return peers, fmean(len(peer.connected) for peer in peers), None
    swarm_of_parts = parted(swarm.peers, shards=swarm.shards, heard=swarm.heard, rng=rng)
    late = swarm_of_parts.seconds[int(0.99 * len(swarm_of_parts.seconds))]
    links = fmean(len(seeker.connected) for seeker in swarm_of_parts.seekers)
    return settled(swarm_of_parts.followers(0), rng), links, round(late, 1) if isfinite(late) else None


def _bodies(swarm: Swarm, hops: float) -> float:
    """Bytes a second of bodies that a node receives: those of the groups that it verifies and those that it passes on,
    each over all hops of the way that the message came. Some peers on the way have a body, so it will be less.
    """
    groups = min(DRAWN, GROUPS * swarm.rate * swarm.round_seconds) * hops
    return groups * swarm.kilobytes * 1024 / GROUPS / swarm.round_seconds


def _busy(swarm: Swarm, work: Work, copies: float) -> float:
    """Share of one core that messages take. A peer sends the same number of copies as it receives."""
    return swarm.rate * (work.first + (copies - 1) * (work.received + work.sent))


def _until(way: Way, share: float, listeners: int) -> float:
    """Seconds until this share of the listeners had the message; of those that it reached, where it reached fewer."""
    return way.times[min(len(way.times), round(share * (listeners - 1))) - 1]
