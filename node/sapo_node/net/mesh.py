"""The router's mesh, kept by our own score, and what a peer may ask of it by control messages.

The library's scorer is taken out: nothing tells it of the mesh's deliveries, it forgets who disconnects, and with equal
scores its grafting adds two strangers to a full mesh at every heartbeat, until as many are pruned.
"""

import random
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import trio
from libp2p.pubsub.gossipsub import GossipSub
from libp2p.pubsub.pb import rpc_pb2

from sapo_node.net.score import NEAR_SECONDS, Offence, Scores

KEPT_BY_SCORE = 4  # of a mesh that is too large; the rest is drawn, so that newcomers stay too
OPPORTUNITY_BEATS = 15  # heartbeats between attempts to better a mesh
OPPORTUNITY_SCORE = 1.0  # median of a mesh below which it is worth it: hardly a message a minute came first from it
OPPORTUNITY_PEERS = 2
BACKOFF_SLACK = 5  # seconds by which clocks and a message under way may differ in what a back-off means

OFFERED_IDS = 512  # in one IHAVE
ASKED_IDS = 32  # of one peer and topic at a time
PROMISE_SECONDS = 10.0
ARRIVALS = 1024
PAUSE_SECONDS = 1.0  # for every RPC of a peer that is ignored: it floods its own buffers

ALLOWED = {"ihave": 10, "offered": 1024, "iwant": 10, "wanted": 128, "graft": 10, "prune": 10, "idontwant": 0, "rpc": 32}
"""Of one peer between two heartbeats: control messages, ids in them, and RPCs that bring no message. An honest router
sends one or two of each; IDONTWANT belongs to a version that we do not speak."""


@dataclass(slots=True)
class Arrival:
    """A message that came lately."""

    time: float
    peers: list[str]
    """Who delivered it, in their order."""
    accepted: bool = False


@dataclass(frozen=True, slots=True)
class Promise:
    """What a peer offered and we asked for."""

    until: float
    ids: frozenset[bytes]


@dataclass(slots=True)
class Spent:
    """What one peer sent and was sent since the last heartbeat."""

    control: Counter[str] = field(default_factory=Counter)
    served: set[bytes] = field(default_factory=set)


class ScoredGossipSub(GossipSub):  # type: ignore[misc]
    """The router with a score that counts."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.scorer = None
        self.scores = Scores()
        self._beats = 0
        self._arrivals: OrderedDict[bytes, Arrival] = OrderedDict()
        self._promises: dict[tuple[Any, str], Promise] = {}
        self._spent: defaultdict[Any, Spent] = defaultdict(Spent)

    # Deliveries, as the service tells of them.

    def arrives(self, peer: Any, key: bytes) -> None:
        """A message came that is new; the node is asked about it next."""
        now = trio.current_time()
        while self._arrivals and (len(self._arrivals) >= ARRIVALS or now - _oldest(self._arrivals) > NEAR_SECONDS):
            self._arrivals.popitem(last=False)
        self._arrivals[key] = Arrival(now, [str(peer)])

    def copied(self, peer: Any, topic: str, key: bytes) -> None:
        """A message came that is known."""
        arrival, now = self._arrivals.get(key), trio.current_time()
        if arrival is None or now - arrival.time > NEAR_SECONDS or str(peer) in arrival.peers:
            return
        arrival.peers.append(str(peer))
        if arrival.accepted:
            self.scores.delivered(now, str(peer), topic, self._names(topic))

    def accepted(self, topic: str, key: bytes) -> None:
        """The node accepted a message: whoever delivered it so far is given credit."""
        arrival, now = self._arrivals.get(key), trio.current_time()
        if arrival is None:
            return
        arrival.accepted = True
        self.scores.brought(now, arrival.peers[0], topic)
        for peer in arrival.peers:
            self.scores.delivered(now, peer, topic, self._names(topic))

    def promised(self, peer: Any, topic: str) -> Promise | None:
        """What is expected of a peer on a topic."""
        return self._promises.get((peer, topic))

    def kept(self, peer: Any, topic: str) -> None:
        """A message came that a peer had promised; one is enough, for links are slow."""
        del self._promises[peer, topic]

    # Control messages.

    async def hears(self, peer: Any, rpc: Any) -> bool:
        """Whether the control messages of an RPC are to be handled; counts them, and lets a peer that floods wait."""
        now, name, control = trio.current_time(), str(peer), rpc.control
        spent = self._spent[peer].control
        for kind, count in _counts(rpc):
            excess = spent[kind] + count - max(ALLOWED[kind], spent[kind])
            spent[kind] += count
            self.scores.offended(now, name, Offence.EXCESS, excess)
        strange = sum(graft.topicID not in self.mesh for graft in control.graft)
        self.scores.offended(now, name, Offence.STRANGE_GRAFT, strange)
        if self.scores.of(now, name).ignored:
            await trio.sleep(PAUSE_SECONDS)
            return False
        return bool(rpc.HasField("control"))

    async def handle_graft(self, graft_msg: Any, sender_peer_id: Any) -> None:
        topic = graft_msg.topicID
        until = self.back_off.get(topic, {}).get(sender_peer_id, 0)
        if until - self._now_as_back_off() > BACKOFF_SLACK:
            self.scores.offended(trio.current_time(), str(sender_peer_id), Offence.EARLY_GRAFT)
        if self._check_back_off(sender_peer_id, topic):
            self._add_back_off(sender_peer_id, topic, is_unsubscribe=False)
            await self.emit_prune(topic, sender_peer_id, do_px=False, is_unsubscribe=False)
        else:
            self.mesh[topic].add(sender_peer_id)
            self._notify_mesh_peer_added(sender_peer_id, topic)
