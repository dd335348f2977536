"""GossipSub 1.1 as a state machine, which does no IO: it takes events with their time, and returns actions.

The driver opens one stream of its own to each peer and reads the streams that peers open. It reports both, gives the
machine each frame that it reads, and performs the actions in their order:

    machine.connected(peer, outbound=True, now=now)
    for action in machine.received(peer, stream, frame, now): ...  # an Ask is answered before the next action is taken
    actions = machine.settle(key, Verdict.ACCEPT, now)             # the verdict on an Ask
    frame = machine.next_frame(peer)                               # after a Wake, while the stream can be written to

A message of a peer reaches the node only through Ask, after topic, size and signature were checked. The node is asked
once about each message, and only a message with an ACCEPT is forwarded. A peer whose RPC cannot be read or exceeds a
limit loses its connection; no other peer is affected.

All rates and scores are charged to the link. Peers are named by the texts of their peer ids, topics by their bytes.
"""

import random
import re
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sapo_node.gossip.actions import Action, Ask, Disconnect, Foreign, Joined, Offended, Pause, Record, Wake
from sapo_node.gossip.defences import DEFENDED, GossipDefences
from sapo_node.gossip.mesh import Swarm, Topic
from sapo_node.gossip.outbox import Outbox, Outboxes
from sapo_node.gossip.peers import Peer
from sapo_node.gossip.rates import Rates
from sapo_node.gossip.recent import Recent
from sapo_node.gossip.rpc import OFFERED_IDS, decode, excess_of, published
from sapo_node.gossip.score import NEAR_SECONDS, Offence, Scores
from sapo_node.gossip.seen import Seen, message_id
from sapo_node.gossip.signing import Author, author_of, is_strictly_signed, may_be_taken_elsewhere
from sapo_node.gossip.verdict import Verdict
from sapo_protocol import RemoteError
from sapo_protocol.keys import public_key_of

OFFERED_PEERS = 6  # least number of peers outside of the mesh that get an offer at each heartbeat
ASKED_IDS = 32  # that this node requests of one peer in one heartbeat
PROMISE_SECONDS = 10.0  # for the first of these ids to arrive
ARRIVALS = 1024  # messages of the last NEAR_SECONDS
SWARM_TOPIC = re.compile(rb"/sapo/[0-9]{1,4}/([0-9a-f]{64})/")


@dataclass(slots=True)
class Arrival:
    """A message that arrived within the last NEAR_SECONDS."""

    time: float
    topic: bytes
    peers: list[str]
    """The peers that delivered it, in order."""
    accepted: bool = False


@dataclass(frozen=True, slots=True)
class Promise:
    """The ids that a peer offered and this node requested."""

    until: float
    ids: frozenset[bytes]


class Machine:
    """The gossip of one node."""

    def __init__(
        self,
        author: Author,
        limits: Mapping[bytes, int],
        *,
        seen: Seen,
        rng: random.Random,
        defences: GossipDefences = DEFENDED,
    ) -> None:
        """`limits` is the size in bytes of the largest message, by topic; there are no other topics."""
        self.scores = Scores()
        self.peers: dict[str, Peer] = {}
        self._author = author
        self._seen = seen
        self._defences = defences
        self._swarm = Swarm(self.peers, self.scores, rng, defences)
        self.topics = {name: Topic(name, most, self._swarm) for name, most in limits.items()}
        self._rates = Rates()
        self._recent = Recent()
        self._outboxes = Outboxes()
        self._record = b""
        self._beat = 0
        self._pending: dict[bytes, tuple[str, Any]] = {}
        """The messages that the node is being asked about, by id, each with the peer that delivered it first."""
        self._arrivals: OrderedDict[bytes, Arrival] = OrderedDict()
        self._promises: dict[tuple[str, bytes], Promise] = {}
        """By peer and topic."""
        self._served: set[tuple[str, bytes]] = set()
        """(peer, message id): sent on request since the last heartbeat."""
        self._asked: Counter[str] = Counter()
        """Ids that were requested of each peer since the last heartbeat."""
        self._actions: list[Action] = []

    def _take(self) -> list[Action]:
        """The actions since the last call."""
        while self._outboxes.is_full:
            slowest = max(self.peers.values(), key=lambda peer: peer.outbox.bytes)
            slowest.outbox.close()
            self._actions.append(Disconnect(slowest.name, "it reads too slowly, and the queues are full"))
        actions = [*self._actions, *map(Wake, self._outboxes.woken)]
        self._actions.clear()
        self._outboxes.woken.clear()
        return actions

    # Connections and streams.

    def connected(self, name: str, *, outbound: bool) -> None:
        """A peer is connected; `outbound` if this node dialled it. May be called again when that changes.

        Raises LocalError if the name is not the peer id of an Ed25519 key.
        """
        if name in self.peers:
            self.peers[name].outbound = outbound
        else:
            self.peers[name] = Peer(name, author_of(public_key_of(name)), outbound, Outbox(name, self._outboxes))

    def gone(self, name: str) -> None:
        """The last connection of a peer ended."""
        peer = self.peers.pop(name, None)
        if peer is None:
            return
        peer.outbox.close()
        for topic in self.topics.values():
            topic.forget(name)
        self._promises = {key: promise for key, promise in self._promises.items() if key[0] != name}

    def stream_opened(self, name: str, stream: int) -> bool:
        """A connected peer opened a gossip stream. Returns False if it has too many, and the driver has to reset it."""
        streams = self.peers[name].streams
        if len(streams) >= self._defences.gossip_streams:
            return False
        streams[stream] = None
        return True

    def stream_ended(self, name: str, stream: int, now: float) -> list[Action]:
        """A gossip stream of a peer ended."""
        if (peer := self.peers.get(name)) and stream in peer.streams:
            named = peer.named
            del peer.streams[stream]
            self._follows(peer, peer.named if peer.streams else named, now)
        return self._take()

    def writable(self, name: str, now: float) -> list[Action]:
        """This node has opened its stream to a peer. First on it go our topics and our record, and what is recent."""
        if peer := self.peers.get(name):
            peer.outbox.open()
            peer.outbox.tell_record(self._record)
            self._served = {served for served in self._served if served[0] != name}
            for topic in self.topics.values():
                if topic.is_followed:
                    peer.outbox.tell_topic(topic.name, follows=True)
                if name in topic.mesh:
                    peer.outbox.graft(topic.name)
                if name in topic.followers:
                    self._introduce(topic, peer, now)
        return self._take()

    def unwritable(self, name: str) -> None:
        """Our stream to a peer ended. What waited for it is lost."""
        if peer := self.peers.get(name):
            peer.outbox.close()

    def next_frame(self, name: str) -> bytes:
        """The next RPC for a peer, with its length before it; empty if nothing waits."""
        peer = self.peers.get(name)
        return peer.outbox.next_frame() if peer and peer.outbox.is_open else b""

    def broken(self, name: str, why: str) -> list[Action]:
        """The bytes of a stream cannot be read any further."""
        self._expel(name, why)
        return self._take()

    def unfinished(self, name: str, now: float) -> list[Action]:
        """A peer began an RPC and did not finish it in time."""
        if peer := self.peers.get(name):
            # An honest peer has one stream. Each further one counts twice, so that a peer with four is refused.
            self.scores.offended(now, name, Offence.UNFINISHED, 2 * len(peer.streams) - 1)
        return self.broken(name, "RPC never finished")

    def _expel(self, name: str, cause: str) -> None:
        """Report a peer and close its connections."""
        self._actions += [Offended(name, cause), Disconnect(name, cause)]
        self.gone(name)

    # RPCs of peers.

    def received(self, name: str, stream: int, frame: bytes, now: float) -> Iterator[Action]:
        """Process one RPC of a peer. The node is asked about each of its messages before the next one is looked at."""
        peer = self.peers.get(name)
        if peer is None or stream not in peer.streams:
            return
        try:
            rpc = decode(frame)
        except RemoteError:
            yield from self.broken(name, "unreadable RPC")
            return
        if excess := excess_of(rpc):
            yield from self.broken(name, excess)
            return
        if not self._is_within_rate(name, rpc, now):
            yield from self.broken(name, "too many control messages")
            return
        if rpc.HasField("record"):
            yield Record(name, rpc.record)
        if rpc.subscriptions:
            self._hear(peer, stream, rpc.subscriptions, now)
        yield from self._take()
        for message in rpc.publish:
            yield from self._consider(peer, message, now)
        if rpc.HasField("control") and self.peers.get(name) is peer:
            self._control(peer, rpc.control, now)
            yield from self._take()
        if debt := self._rates.debt(name, now, rpc):
            yield Pause(debt)

    def _is_within_rate(self, name: str, rpc: Any, now: float) -> bool:
        """Charge the control messages of an RPC. Returns False if the node now refuses the peer."""
        if not self._defences.control_caps or (rpc.publish and not rpc.HasField("control")):
            return True
        excess = self._rates.excess(name, now, rpc)
        strange = sum(self._followed(graft.topic) is None for graft in rpc.control.graft)
        self.scores.offended(now, name, Offence.EXCESS, excess)
        self.scores.offended(now, name, Offence.STRANGE_GRAFT, strange)
        return not ((excess or strange) and self.refuses(name, now))

    def refuses(self, name: str, now: float) -> bool:
        """Return whether the node refuses a peer because it flooded lately."""
        return self.scores.of(now, name).refused

    def _hear(self, peer: Peer, stream: int, subscriptions: Iterable[Any], now: float) -> None:
        peer.hear(stream, subscriptions, self.topics)
        self._follows(peer, peer.named, now)
        for each in subscriptions:
            found = SWARM_TOPIC.match(each.topic)
            if each.subscribe and found and each.topic not in self.topics:
                self._actions.append(Foreign(peer.name, found.group(1).decode()))

    def _follows(self, peer: Peer, named: Collection[bytes], now: float) -> None:
        """From now on the peer follows these topics."""
        new = set(named)
        left, joined = peer.follows - new, new - peer.follows
        if new and not peer.follows:
            self._actions.append(Joined(peer.name))
        peer.follows = new
        for name in left:
            self.topics[name].forget(peer.name)
        for name in sorted(joined):
            self.topics[name].followers.add(peer.name)
            self._introduce(self.topics[name], peer, now)

    def _introduce(self, topic: Topic, peer: Peer, now: float) -> None:
        """Send the messages of the last seconds to a new follower of a topic."""
        topic.joined(peer.name, now)
        self._serve(peer, self._recent.offered().get(topic.name, ()))

    # Messages.

    def _consider(self, peer: Peer, message: Any, now: float) -> Iterator[Action]:
        """Check one message, and ask the node about it if it is new."""
        if len(message.topics) != 1:
            yield Offended(peer.name, "message in several topics")
            return
        topic = self.topics.get(message.topics[0])
        if topic is None or not topic.is_followed:
            return  # its sender may not know yet that we left the topic
        key = message_id(topic.name, message.data)
        if (promise := self._promises.get((peer.name, topic.name))) and key in promise.ids:
            del self._promises[peer.name, topic.name]  # one is enough, because links can be slow
        if self._seen.knows(key, now):
            self._copied(peer.name, key, now)
            return
        if len(message.data) > topic.max_bytes:
            yield Offended(peer.name, "message too large")
            return
        # Before the node is asked, because it is asked once. A copy with a bad signature is not forwarded, and would
        # otherwise suppress the good copies.
        if not is_strictly_signed(message):
            if not may_be_taken_elsewhere(message):
                yield Offended(peer.name, "bad gossip signature")
            return
        self._seen.ask(key, now)
        self._pending[key] = peer.name, message
        self._arrivals[key] = Arrival(now, topic.name, [peer.name])
        if len(self._arrivals) > ARRIVALS:
            self._credit(self._arrivals.popitem(last=False)[1], now)
        yield Ask(peer.name, topic.name, message.data, key)

    def settle(self, key: bytes, verdict: Verdict, now: float) -> list[Action]:
        """The node decided about the message of an Ask. An ACCEPT forwards it."""
        source, message = self._pending.pop(key)
        self._seen.settle(key, verdict, now)
        if verdict is Verdict.ACCEPT:
            if arrival := self._arrivals.get(key):
                arrival.accepted = True
            topic = self.topics[message.topics[0]]
            field = published(message)
            self._recent.add(topic.name, key, field)
            for name in topic.receivers(own=False):
                if name != source and self.peers[name].identity != message.author:
                    self.peers[name].outbox.send(field)
        return self._take()

    def publish(self, name: bytes, data: bytes, now: float) -> list[Action]:
        """Sign a message of this node, and send it. The node may publish a message again."""
        topic, key = self.topics[name], message_id(name, data)
        self._seen.settle(key, Verdict.ACCEPT, now)
        field = published(self._author.signed(name, data))
        self._recent.add(name, key, field)
        for peer in topic.receivers(own=True):
            self.peers[peer].outbox.send(field)
        return self._take()

    def _copied(self, name: str, key: bytes, now: float) -> None:
        """A copy of a known message arrived."""
        arrival = self._arrivals.get(key)
        if arrival and now - arrival.time <= NEAR_SECONDS and name not in arrival.peers:
            arrival.peers.append(name)

    def _credit(self, arrival: Arrival, now: float) -> None:
        """Credit a message to the peers that delivered it, if the node accepted it. Later copies do not count."""
        if arrival.accepted:
            self.scores.delivered(now, arrival.topic, arrival.peers, self.topics[arrival.topic].mesh)

    # Control messages.

    def _control(self, peer: Peer, control: Any, now: float) -> None:
        """Process the control messages of an RPC. Topics that this node does not follow are passed over."""
        for ihave in control.ihave:
            if topic := self._followed(ihave.topic):
                self._offered(peer, topic, ihave.ids, now)
        for iwant in control.iwant:
            self._serve(peer, iwant.ids)
        for graft in control.graft:
            if topic := self._followed(graft.topic):
                topic.grafted(peer.name, now)
        for prune in control.prune:
            if topic := self._followed(prune.topic):
                topic.pruned(peer.name, prune.backoff, now)

    def _followed(self, name: bytes) -> Topic | None:
        topic = self.topics.get(name)
        return topic if topic and topic.is_followed else None

    def _offered(self, peer: Peer, topic: Topic, ids: Iterable[bytes], now: float) -> None:
        """Request some of the offered ids that we lack. We request more of a peer and topic once one has arrived."""
        lacking = {key for key in ids if not self._seen.knows(key, now)}
        most = min(len(lacking), peer.outbox.may_want)
        if self._defences.control_caps:
            most = min(most, ASKED_IDS - self._asked[peer.name])
            if (peer.name, topic.name) in self._promises:
                return
        if most <= 0:
            return
        asked = self._swarm.rng.sample(sorted(lacking), most)
        self._asked[peer.name] += most
        if self._defences.control_caps:
            self._promises[peer.name, topic.name] = Promise(now + PROMISE_SECONDS, frozenset(asked))
        peer.outbox.want(asked)

    def _serve(self, peer: Peer, keys: Iterable[bytes]) -> None:
        """Send these messages if they are recent, each once per peer and heartbeat at most."""
        if not peer.outbox.is_open:
            return
        for key, field in self._recent.find(keys).items():
            if (peer.name, key) not in self._served:
                peer.outbox.send(field)
                if self._defences.control_caps:
                    self._served.add((peer.name, key))

    # This node.

    def follow(self, names: Collection[bytes], now: float) -> list[Action]:
        """Follow these topics and no others."""
        for topic in self.topics.values():
            follows = topic.name in names
            if follows == topic.is_followed:
                continue
            for peer in self.peers.values():
                peer.outbox.tell_topic(topic.name, follows=follows)
            if follows:
                topic.follow(now)
            else:
                topic.leave(now)
        return self._take()

    def announce(self, record: bytes) -> list[Action]:
        """Send our signed peer record to each peer that does not have it yet."""
        if record != self._record:
            self._record = record
            for peer in self.peers.values():
                peer.outbox.tell_record(record)
        return self._take()

    def heartbeat(self, now: float) -> list[Action]:
        """To be called once a second: credit and charge, keep the meshes, and offer the latest messages."""
        self._beat += 1
        for key in [key for key, arrival in self._arrivals.items() if now - arrival.time > NEAR_SECONDS]:
            self._credit(self._arrivals.pop(key), now)
        stalled = {peer for (peer, _), promise in self._promises.items() if now > promise.until}
        self._promises = {key: promise for key, promise in self._promises.items() if key[0] not in stalled}
        for peer in sorted(stalled):  # once, on however many topics
            self.scores.offended(now, peer, Offence.BROKEN_PROMISE)
        for topic in self.topics.values():
            if topic.is_followed:
                topic.tend(self._beat, now)
        if self._defences.gossip_repair:
            self._offer()
        self._recent.beat()
        self._served.clear()
        self._asked.clear()
        return self._take()

    def _offer(self) -> None:
        """Offer the latest messages (IHAVE) to random peers outside of the mesh, those in back-off among them.

        A node that strangers drove out of its mesh would otherwise get no offers from the mesh peers that it lost. The
        topics of one peer share what one RPC may offer.
        """
        offers: dict[str, dict[bytes, list[bytes]]] = {}
        for name, latest in self._recent.offered().items():
            topic = self.topics[name]
            if not topic.is_followed:
                continue
            others = topic.followers - topic.mesh
            for peer in self._swarm.sample(others, max(OFFERED_PEERS, len(others) // 4)):
                offers.setdefault(peer, {})[name] = latest
        for peer, by_topic in offers.items():
            most = OFFERED_IDS // len(by_topic)
            for name, ids in by_topic.items():
                self.peers[peer].outbox.offer(name, self._swarm.rng.sample(ids, min(len(ids), most)))
