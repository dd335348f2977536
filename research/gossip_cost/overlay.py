"""The connections of all peers and their meshes, by the rules of nodes."""

import random
from collections.abc import Collection
from dataclasses import dataclass, field

from sapo_node.gossip.mesh import DEGREE, DIALLED, HIGH, LOW
from sapo_node.net.dialer import ENOUGH as DIALS
from sapo_node.net.host import CONNECTIONS

BACK_OFF_HEARTBEATS = 60
HEARTBEATS = 90
"""Heartbeats until the mesh has settled."""


@dataclass(slots=True)
class Peer:
    """One peer's view."""

    dialled: set[int] = field(default_factory=set)
    connected: set[int] = field(default_factory=set)
    mesh: set[int] = field(default_factory=set)
    back_off: dict[int, int] = field(default_factory=dict)
    """Until which heartbeat a peer is not asked into the mesh."""


def links(count: int, rng: random.Random) -> list[Peer]:
    """Peers that joined one after the other and were each introduced to some earlier peers; without a mesh."""
    peers = [Peer() for _ in range(count)]
    for number in range(1, count):
        for other in rng.sample(range(number), min(number, 2 * DIALS)):
            if len(peers[number].dialled) < DIALS and len(peers[other].connected) < CONNECTIONS:
                peers[number].dialled.add(other)
                peers[number].connected.add(other)
                peers[other].connected.add(number)
    return peers


def overlay(count: int, rng: random.Random) -> list[Peer]:
    """A settled swarm on one topic."""
    return settled(links(count, rng), rng)


def settled(peers: list[Peer], rng: random.Random) -> list[Peer]:
    """The same peers with their meshes on a topic to which all of them subscribe."""
    order = list(range(len(peers)))
    for heartbeat in range(HEARTBEATS):
        rng.shuffle(order)
        for number in order:
            _heartbeat(peers, number, heartbeat, rng)
    return peers


def _heartbeat(peers: list[Peer], number: int, heartbeat: int, rng: random.Random) -> None:
    here = peers[number]
    if len(here.mesh) > HIGH:
        kept = set(_draw(here.mesh & here.dialled, DIALLED, rng))
        for other in _draw(here.mesh - kept, len(here.mesh) - DEGREE, rng):
            here.mesh.discard(other)
            peers[other].mesh.discard(number)
            here.back_off[other] = peers[other].back_off[number] = heartbeat + BACK_OFF_HEARTBEATS
    free = {other for other in here.connected - here.mesh if here.back_off.get(other, 0) <= heartbeat}
    wanted = _draw(free, DEGREE - len(here.mesh), rng) if len(here.mesh) < LOW else []
    own = len(here.mesh & here.dialled) + len(here.dialled.intersection(wanted))
    wanted += _draw(free & here.dialled - set(wanted), DIALLED - own, rng)
    for other in wanted:
        here.mesh.add(other)
        peers[other].mesh.add(number)


def _draw(of: Collection[int], count: int, rng: random.Random) -> list[int]:
    return rng.sample(sorted(of), min(len(of), max(0, count)))
