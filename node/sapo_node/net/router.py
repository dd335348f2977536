"""Keeps the mesh by this project's gossip score, and limits what a peer gets by control messages.

The library's scorer is removed for three reasons. Nothing reports the mesh's deliveries to it. It forgets peers that
disconnect. While all scores are equal, it grafts two more peers at every heartbeat, until the mesh is too large and it
prunes as many.
"""

import random
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any

import trio
from libp2p.pubsub.pb import rpc_pb2

from sapo_node.gossip.score import NEAR_SECONDS, TOLERATED, Offence, Scores
from sapo_node.net.gossipsub import DIALLED, SteadyGossipSub
from sapo_node.processes.link_budget import LinkBudget
from sapo_protocol.limits import MAX_SHARDS

# Limits of one RPC. Honest RPCs stay far below: a heartbeat offers only the messages of the last three seconds. An RPC
# above a limit is wrong by itself, however seldom the peer sends one. `link_budget` limits the rate.
PUBLISHES = 64
SUBSCRIPTIONS = 64
RECORD_BYTES = 8192
CONTROLS = 64  # of each kind
OFFERED_IDS = 512
WANTED_IDS = 64  # each can make this node send a whole message
BACKOFF_SECONDS = 600  # the longest time for which a peer can keep this node out of its mesh

TOPICS = MAX_SHARDS + 8
"""Above the topics of any swarm: its shards, and that of evidence."""
ALLOWED = {
    "ihave": TOPICS,
    "offered": 512,
    "iwant": TOPICS,
    "wanted": 64,
    "graft": TOPICS,
    "prune": TOPICS,
    "idontwant": 0,
    "rpc": TOPICS,
}
"""The most of each that a peer may send per second: control messages, ids in them, and RPCs without a message. In one
heartbeat an honest router sends one IHAVE, GRAFT or PRUNE for each topic in one RPC, and one IWANT for each topic in an
RPC of its own. IDONTWANT belongs to a gossipsub version that this node does not speak."""
BURST_SECONDS = 10.0  # of ALLOWED may come at once: if this node did not read for so long, as many are waiting

KEPT_BY_SCORE = 4  # best peers that stay in a mesh that is too large; of the others random ones stay, so also new ones
OPPORTUNITY_BEATS = 15  # heartbeats between attempts to improve a mesh
OPPORTUNITY_SCORE = 1.0  # median score of a mesh below which the node tries to improve it
OPPORTUNITY_PEERS = 2  # that are added in one attempt
BACKOFF_SLACK = 5  # seconds by which two nodes may differ about the end of a back-off
CROWDED_BACK_OFF = 10  # seconds out of a mesh that was too large: its first prunes come before any peer has a score
ASKED_IDS = 32  # that this node requests of one peer in one heartbeat
PROMISE_SECONDS = 10.0  # for the first of these ids to arrive
ARRIVALS = 1024  # messages of the last NEAR_SECONDS


def excess_of(rpc: Any) -> str:
    """The first count of an RPC that is above its limit, as text; empty if no count is."""
    control = rpc.control
    counts = (
        ("messages", len(rpc.publish), PUBLISHES),
        ("subscriptions", len(rpc.subscriptions), SUBSCRIPTIONS),
        ("bytes of peer record", len(rpc.senderRecord), RECORD_BYTES),
        ("IHAVE", len(control.ihave), CONTROLS),
        ("IWANT", len(control.iwant), CONTROLS),
        ("GRAFT", len(control.graft), CONTROLS),
        ("PRUNE", len(control.prune), CONTROLS),
        ("offered ids", sum(len(ihave.messageIDs) for ihave in control.ihave), OFFERED_IDS),
        ("wanted ids", sum(len(iwant.messageIDs) for iwant in control.iwant), WANTED_IDS),
    )
    return next((f"{found} {what} in one RPC" for what, found, cap in counts if found > cap), "")


def sanitise(control: Any, topics: Collection[str]) -> None:
    """Remove from a control message the topics that this node does not follow, and all addresses.

    The router keeps a back-off for each topic of a control message for ever, and it dials every address that a PRUNE
    names.
    """
    for kind in (control.ihave, control.graft, control.prune):
        kept = [item for item in kind if item.topicID in topics]
        del kind[:]
        kind.extend(kept)
    for prune in control.prune:
        del prune.peers[:]
        prune.backoff = min(prune.backoff, BACKOFF_SECONDS)
    del control.idontwant[:]  # belongs to a gossipsub version that this node does not speak


class ControlBudget:
    """The control messages that each peer may still send: ALLOWED per second."""

    def __init__(self) -> None:
        self._budgets = {kind: LinkBudget(rate=rate, burst=rate * BURST_SECONDS) for kind, rate in ALLOWED.items()}

    def excess(self, peer: str, now: float, rpc: Any) -> int:
        """Charge one RPC to a peer. Returns how many of its parts were above the limit."""
        counts = counts_of(rpc)
        return round(sum(self._budgets[kind].take_rest(peer, now, count) for kind, count in counts))


def counts_of(rpc: Any) -> tuple[tuple[str, int], ...]:
    """The counted parts of an RPC, by their names in ALLOWED."""
    control = rpc.control
    return (
        ("ihave", len(control.ihave)),
        ("offered", sum(len(each.messageIDs) for each in control.ihave)),
        ("iwant", len(control.iwant)),
        ("wanted", sum(len(each.messageIDs) for each in control.iwant)),
        ("graft", len(control.graft)),
        ("prune", len(control.prune)),
        ("idontwant", len(control.idontwant)),
        ("rpc", not rpc.publish),
    )


@dataclass(slots=True)
class Arrival:
    """A message that arrived within the last NEAR_SECONDS."""

    time: float
    topic: str
    peers: list[str]
    """The peers that delivered it, in order."""
    accepted: bool = False


@dataclass(frozen=True, slots=True)
class Promise:
    """The ids that a peer offered and this node requested."""

    until: float
    ids: frozenset[bytes]


class ScoredGossipSub(SteadyGossipSub):
    """The router, with this project's score."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.scorer = None
        self.scores = Scores()
        self._heartbeats = 0
        self._arrivals: OrderedDict[bytes, Arrival] = OrderedDict()
        self._promises: dict[tuple[Any, str], Promise] = {}
        self._control = ControlBudget()
        self._served: set[tuple[Any, bytes]] = set()
        self._asked: Counter[Any] = Counter()  # ids of each peer since the last heartbeat
        self._crowded_out: set[tuple[Any, str]] = set()
        """(peer, topic): no room was left for the peer in the mesh at the last heartbeat."""

    # Deliveries, which `HardenedPubsub` reports.

    def arrives(self, peer: Any, topic: str, key: bytes) -> None:
        """A new message arrived. The node is asked about it next."""
        self._arrivals[key] = Arrival(trio.current_time(), topic, [str(peer)])
        if len(self._arrivals) > ARRIVALS:
            self._credit(self._arrivals.popitem(last=False)[1])

    def copied(self, peer: Any, key: bytes) -> None:
        """A copy of a known message arrived."""
        arrival, name = self._arrivals.get(key), str(peer)
        if arrival and trio.current_time() - arrival.time <= NEAR_SECONDS and name not in arrival.peers:
            arrival.peers.append(name)

    def accepted(self, key: bytes) -> None:
        """The node accepted a message."""
        if arrival := self._arrivals.get(key):
            arrival.accepted = True

    def _credit(self, arrival: Arrival) -> None:
        """Credit a message to the peers that delivered it, if the node accepted it. Later copies do not count."""
        if arrival.accepted:
            mesh = frozenset(map(str, self.mesh.get(arrival.topic, ())))
            self.scores.delivered(trio.current_time(), arrival.topic.encode(), arrival.peers, mesh)

    def promised(self, peer: Any, topic: str) -> Collection[bytes]:
        """The ids that this node requested of a peer, if none of them has arrived."""
        promise = self._promises.get((peer, topic))
        return promise.ids if promise else ()

    def kept(self, peer: Any, topic: str) -> None:
        """A requested id arrived. One is enough, because links can be slow."""
        del self._promises[peer, topic]

    # Control messages.

    def within_rate(self, peer: Any, rpc: Any) -> bool:
        """Count the control messages of an RPC. Returns False if the node now refuses the peer."""
        if not self.defences.control_caps:
            return True
        now, name = trio.current_time(), str(peer)
        excess = self._control.excess(name, now, rpc)
        self.scores.offended(now, name, Offence.EXCESS, excess)
        strange = sum(graft.topicID not in self.mesh for graft in rpc.control.graft)
        self.scores.offended(now, name, Offence.STRANGE_GRAFT, strange)
        return not self.refuses(name)

    def refuses(self, peer: str) -> bool:
        """Return whether the node refuses a peer because it flooded lately."""
        return self.scores.of(trio.current_time(), peer).refused

    async def handle_graft(self, graft_msg: Any, sender_peer_id: Any) -> None:
        """Add a peer to the mesh at its request, unless its back-off still runs or its score is negative."""
        if not (self.defences.scored_mesh and self.defences.control_caps):
            await super().handle_graft(graft_msg, sender_peer_id)
            return
        topic, peer = graft_msg.topicID, sender_peer_id
        if topic not in self.mesh:
            return
        early = self.back_off.get(topic, {}).get(peer, 0) - trio.current_time() > BACKOFF_SLACK
        self.scores.offended(trio.current_time(), str(peer), Offence.EARLY_GRAFT, early)
        if early or self._score(peer) < 0:
            self._add_back_off(peer, topic, is_unsubscribe=False)
            await self.emit_prune(topic, peer, do_px=False, is_unsubscribe=False)
        else:
            self._admit(peer, topic)

    async def handle_ihave(self, ihave_msg: Any, sender_peer_id: Any) -> None:
        """Request some of the offered ids that we lack. We request more of a peer and topic once one has arrived."""
        if not self.defences.control_caps:
            await super().handle_ihave(ihave_msg, sender_peer_id)
            return
        topic, peer = ihave_msg.topicID, sender_peer_id
        lacking = {key for key in ihave_msg.messageIDs if not self.pubsub.seen_messages.has(key)}
        most = min(len(lacking), ASKED_IDS - self._asked[peer])
        if not most or (peer, topic) in self._promises:
            return
        asked = random.sample(sorted(lacking), most)
        self._asked[peer] += most
        self._promises[peer, topic] = Promise(trio.current_time() + PROMISE_SECONDS, frozenset(asked))
        await self.emit_iwant(asked, peer)

    async def handle_iwant(self, iwant_msg: Any, sender_peer_id: Any) -> None:
        """Send the requested messages that are still in the cache, an RPC each, once per peer and heartbeat at most."""
        if not self.defences.control_caps:
            await super().handle_iwant(iwant_msg, sender_peer_id)
            return
        for message in self._unserved(sender_peer_id, iwant_msg.messageIDs):
            self.send_rpc(sender_peer_id, rpc_pb2.RPC(publish=[message]))

    async def send_recent_messages(self, peer_id: Any, topic: str) -> None:
        """Put the latest messages into the queue of a new follower of a topic. The library writes them to the stream
        beside the queue, which mixes the bytes of two RPCs, and holds any number of them for a peer that does not read.
        """
        for message in self._unserved(peer_id, self.mcache.window(topic)):
            self.send_rpc(peer_id, rpc_pb2.RPC(publish=[message]))

    def _unserved(self, peer: Any, keys: Iterable[bytes]) -> list[Any]:
        """The messages of these ids in the cache, without those that the peer got since the last heartbeat."""
        wanted = {key: message for key in keys if (peer, key) not in self._served and (message := self.mcache.get(key))}
        self._served.update((peer, key) for key in wanted)
        return list(wanted.values())

    def _check_back_off(self, peer: Any, topic: str) -> bool:
        """Return whether a peer must stay out of the mesh: in back-off, or with a negative score."""
        return super()._check_back_off(peer, topic) or (self.defences.scored_mesh and self._score(peer) < 0)

    def _score(self, peer: Any) -> float:
        return self.scores.score(trio.current_time(), str(peer))

    # The mesh.

    def mesh_heartbeat(self) -> tuple[Any, Any]:
        """The peers to GRAFT into the mesh and to PRUNE from it. All peers with a negative score are pruned."""
        self._settle()
        if not self.defences.scored_mesh:
            return super().mesh_heartbeat()
        negative = [
            (peer, topic)
            for topic, mesh in self.mesh.items()
            for peer in mesh - self._spared(topic)
            if self._score(peer) < 0
        ]
        for peer, topic in negative:
            self._dismiss(peer, topic)
        grafts, prunes = super().mesh_heartbeat()
        self._crowded_out = {(peer, topic) for peer, topics in prunes.items() for topic in topics}
        for peer, topic in self._crowded_out:
            self._dismiss(peer, topic)
        for peer, topic in negative:
            prunes[peer].append(topic)
        for topic in self.mesh:
            for peer in self._better(topic):
                self._admit(peer, topic)
                grafts[peer].append(topic)
        return grafts, prunes

    def _settle(self) -> None:
        """Credit deliveries, charge a peer once for broken promises, on however many topics, and drop expired state."""
        self._heartbeats += 1
        now = trio.current_time()
        for key in [key for key, arrival in self._arrivals.items() if now - arrival.time > NEAR_SECONDS]:
            self._credit(self._arrivals.pop(key))
        stalled = {peer for (peer, _), promise in self._promises.items() if now > promise.until}
        self._promises = {key: promise for key, promise in self._promises.items() if key[0] not in stalled}
        for peer in stalled:
            self.scores.offended(now, str(peer), Offence.BROKEN_PROMISE)
        self._served.clear()
        self._asked.clear()
        self._crowded_out.clear()
        for topic, peers in self.back_off.items():
            self.back_off[topic] = {peer: until for peer, until in peers.items() if until > now}

    def _spared(self, topic: str) -> set[Any]:
        """The mesh peers that stay despite a negative score: the best DIALLED that we dialled.

        Their offences are at most TOLERATED. An attacker that sends many messages to this node alone makes all other
        peers look idle.
        """
        ranked = sorted(self.mesh[topic] & self._dialled(topic), key=self._score, reverse=True)
        now = trio.current_time()
        return {peer for peer in ranked[:DIALLED] if self.scores.of(now, str(peer)).offences <= TOLERATED}

    def _select_peers_for_pruning(self, topic: str, num_to_prune: int) -> list[Any]:
        """The library's choice, without the KEPT_BY_SCORE best peers."""
        if not self.defences.scored_mesh:
            return super()._select_peers_for_pruning(topic, num_to_prune)
        best = sorted(self.mesh[topic], key=self._score, reverse=True)[:KEPT_BY_SCORE]
        worst = super()._select_peers_for_pruning(topic, num_to_prune + len(best))
        return [peer for peer in worst if peer not in best][:num_to_prune]

    def _better(self, topic: str) -> list[Any]:
        """Peers to add to a mesh with a low median score (opportunistic grafting): the best above that median.

        Every OPPORTUNITY_BEATS the node looks for them, if the mesh has room. While no mesh peer delivers, it looks at
        each heartbeat, in a full mesh too: peers that all deliver nothing have no deficit beside each other.
        """
        mesh = self.mesh[topic]
        scores = [self._score(peer) for peer in mesh]
        middle = median(scores) if scores else OPPORTUNITY_SCORE
        is_dark = max(scores, default=OPPORTUNITY_SCORE) <= 0
        has_turn = self._heartbeats % OPPORTUNITY_BEATS == 0 and len(mesh) < self.degree_high
        if middle >= OPPORTUNITY_SCORE or not (is_dark or has_turn):
            return []
        others = self.pubsub.peer_topics.get(topic, set()) - mesh
        free = [peer for peer in others if self._is_gossipsub_peer(peer) and not self._check_back_off(peer, topic)]
        return sorted((peer for peer in free if self._score(peer) > middle), key=self._score)[-OPPORTUNITY_PEERS:]

    def _back_off_of(self, peer: Any, topic: str) -> int:
        """Seconds that a peer which this heartbeat removes from a mesh has to stay out of it."""
        return CROWDED_BACK_OFF if (peer, topic) in self._crowded_out else int(self.prune_back_off)

    def _admit(self, peer: Any, topic: str) -> None:
        self.mesh[topic].add(peer)
        self._notify_mesh_peer_added(peer, topic)

    def _dismiss(self, peer: Any, topic: str) -> None:
        """Remove a peer from the mesh. Our back-off is BACKOFF_SLACK longer, because the peer's begins later."""
        self.mesh[topic].discard(peer)
        seconds = self._back_off_of(peer, topic) + BACKOFF_SLACK
        self._add_back_off(peer, topic, is_unsubscribe=False, backoff_duration=seconds)
        self.scores.dismissed(trio.current_time(), str(peer), topic.encode())

    async def leave(self, topic: str) -> None:
        """Stop following a topic. The library's function iterates over a mesh that may change meanwhile."""
        for peer in self.mesh.pop(topic, ()):
            self._add_back_off(peer, topic, is_unsubscribe=True)
            self.scores.dismissed(trio.current_time(), str(peer), topic.encode())
            await self.emit_prune(topic, peer, do_px=False, is_unsubscribe=True)

    async def _emit_control_msgs(self, peers_to_graft: Any, peers_to_prune: Any, peers_to_gossip: Any) -> None:
        """Send each peer its own control messages. The library also sends it the GRAFTs of the peers before it, and
        any number of ids: here the topics share what one RPC may offer.
        """
        for peer in {**peers_to_graft, **peers_to_prune, **peers_to_gossip}:
            latest = peers_to_gossip.get(peer, {})
            most = OFFERED_IDS // max(1, len(latest))
            offers = [
                rpc_pb2.ControlIHave(topicID=topic, messageIDs=random.sample(ids, min(len(ids), most)))
                for topic, ids in latest.items()
            ]
            grafts = [rpc_pb2.ControlGraft(topicID=topic) for topic in peers_to_graft.get(peer, ())]
            prunes = [
                rpc_pb2.ControlPrune(topicID=topic, backoff=self._back_off_of(peer, topic))
                for topic in peers_to_prune.get(peer, ())
            ]
            await self.emit_control_message(self.pack_control_msgs(offers, grafts, prunes), peer)

    def remove_peer(self, peer_id: Any) -> None:
        super().remove_peer(peer_id)
        self._promises = {key: promise for key, promise in self._promises.items() if key[0] != peer_id}
