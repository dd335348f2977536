"""Gossip machines joined by links with delay, on virtual time: no socket, no task, and a seed for each run."""

import heapq
import random
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from nacl.signing import SigningKey

from sapo_node.gossip.actions import Action, Ask, Disconnect, Foreign, Joined, Offended, Pause, Record, Wake
from sapo_node.gossip.machine import Machine
from sapo_node.gossip.rpc import Frames, Rpc, Subscription, decode, framed
from sapo_node.gossip.seen import Seen
from sapo_node.gossip.signing import Author, signed_bytes
from sapo_node.gossip.verdict import Verdict
from sapo_protocol.keys import peer_id

SWARM = "ab" * 32
LIMIT = 900_000


def topic_of(shard: int) -> bytes:
    return f"/sapo/2/{SWARM}/rollouts/{shard}".encode()


TOPIC = topic_of(0)


class World:
    """The clock and all links."""

    def __init__(self, seed: int = 0, *, delay: tuple[float, float] = (0.01, 0.1)) -> None:
        self.now = 0.0
        self.rng = random.Random(seed)
        self.delay = delay
        self.nodes: dict[str, Any] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count(1)
        self._arrives: Counter[tuple[str, int]] = Counter()
        self.silent: set[str] = set()
        """Peers that do not read."""

    def node(self, number: int, **settings: Any) -> "Node":
        return Node(self, number, **settings)

    def nodes_of(self, count: int, **settings: Any) -> "list[Node]":
        return [self.node(number, **settings) for number in range(1, count + 1)]

    def mesh_of(self, nodes: "list[Node]", degree: int = 64) -> None:
        """Each node dials up to so many of those before it."""
        for index, node in enumerate(nodes):
            for other in self.rng.sample(nodes[:index], min(index, degree)):
                self.dial(node, other)
        self.run(3)

    def at(self, seconds: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), call))

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self._events and self._events[0][0] <= until:
            self.now, _, call = heapq.heappop(self._events)
            call()
        self.now = until

    def dial(self, one: Any, other: Any) -> None:
        one.link(other, outbound=True)
        other.link(one, outbound=False)
        one.open(other.name)
        other.open(one.name)

    def hang_up(self, one: Any, other: Any) -> None:
        one.lose(other.name)
        other.lose(one.name)

    def stream(self) -> int:
        return next(self._numbers)

    def carry(self, sender: str, to: str, stream: int, frame: bytes) -> None:
        """A frame arrives after a delay, and behind those before it."""
        when = max(self.now + self.rng.uniform(*self.delay), self._arrives[to, stream])
        self._arrives[to, stream] = when
        self.at(when - self.now, lambda: self.nodes[to].arrive(sender, stream, frame))


class Node:
    """One machine and its driver."""

    def __init__(self, world: World, number: int, *, topics: Iterable[bytes] = (TOPIC,), **settings: Any) -> None:
        key = SigningKey(number.to_bytes(32, "big"))
        self.name = peer_id(bytes(key.verify_key))
        self.world = world
        self.verdict: Callable[[bytes], Verdict] = lambda _: Verdict.ACCEPT
        self.thinks = 0.0
        """Seconds from a question to its verdict."""
        self.heard: list[bytes] = []
        self.senders: list[str] = []
        self.offences: list[tuple[str, str]] = []
        self.left: list[tuple[str, str]] = []
        """(peer, reason) of those that this node disconnected."""
        self.notices: list[Action] = []
        self.copies = 0
        """Messages that it sent, own ones and others'."""
        self.sent_bytes = 0
        author = Author(bytes(key.verify_key), lambda data: key.sign(data).signature, number * 10**9)
        topics = list(topics)
        self.machine = Machine(author, dict.fromkeys(topics, LIMIT), seen=Seen(), rng=random.Random(number), **settings)
        self.machine.follow(topics, 0.0)
        self._streams: dict[str, int] = {}
        self._reads: dict[int, list[tuple[str, bytes]]] = {}
        self._busy: set[int] = set()
        world.nodes[self.name] = self
        world.at(world.rng.uniform(0.2, 1.2), self._beat)

    def _beat(self) -> None:
        self.perform(self.machine.heartbeat(self.world.now))
        self.world.at(1.0, self._beat)

    def link(self, other: Any, *, outbound: bool) -> None:
        self.machine.connected(other.name, outbound=outbound)

    def open(self, peer: str) -> None:
        """Open our stream to a peer."""
        stream = self._streams[peer] = self.world.stream()
        if self.world.nodes[peer].accept(self.name, stream):
            self.perform(self.machine.writable(peer, self.world.now))

    def accept(self, peer: str, stream: int) -> bool:
        self._reads[stream] = []
        return self.machine.stream_opened(peer, stream)

    def close(self, peer: str) -> None:
        """Our stream to a peer ends."""
        self.machine.unwritable(peer)
        self.world.nodes[peer].ended(self.name, self._streams.pop(peer))

    def ended(self, peer: str, stream: int) -> None:
        self._reads.pop(stream, None)
        self.perform(self.machine.stream_ended(peer, stream, self.world.now))

    def lose(self, peer: str) -> None:
        self.machine.gone(peer)
        self._streams.pop(peer, None)

    def publish(self, data: bytes, topic: bytes = TOPIC) -> None:
        self.perform(self.machine.publish(topic, data, self.world.now))

    def follow(self, *topics: bytes) -> None:
        self.perform(self.machine.follow(topics, self.world.now))

    def arrive(self, peer: str, stream: int, frame: bytes) -> None:
        if stream in self._reads:
            self._reads[stream].append((peer, frame))
            self._read(stream)

    def _read(self, stream: int) -> None:
        if stream not in self._busy and self._reads.get(stream):
            self._busy.add(stream)
            peer, frame = self._reads[stream].pop(0)
            self._go_on(stream, self.machine.received(peer, stream, frame, self.world.now))

    def _go_on(self, stream: int, actions: Any) -> None:
        for action in actions:
            match action:
                case Pause(seconds):
                    self.world.at(seconds, lambda: self._go_on(stream, actions))
                    return
                case Ask() if self.thinks:
                    self.world.at(self.thinks, lambda asked=action: (self._decide(asked), self._go_on(stream, actions)))
                    return
                case Ask():
                    self._decide(action)
                case _:
                    self.perform([action])
        self._busy.discard(stream)
        self._read(stream)

    def _decide(self, ask: Ask) -> None:
        self.heard.append(ask.data)
        self.senders.append(ask.peer)
        self.perform(self.machine.settle(ask.key, self.verdict(ask.data), self.world.now))

    def perform(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Wake(peer):
                    if peer not in self.world.silent:
                        self.world.at(0.0, lambda peer=peer: self._write(peer))
                case Disconnect(peer, why):
                    self.left.append((peer, why))
                    self.world.hang_up(self, self.world.nodes[peer])
                case Offended(peer, cause):
                    self.offences.append((peer, cause))
                case Joined() | Foreign() | Record():
                    self.notices.append(action)

    def _write(self, peer: str) -> None:
        while peer in self._streams and (framed_rpc := self.machine.next_frame(peer)):
            self.sent_bytes += len(framed_rpc)
            for frame in Frames().feed(framed_rpc):
                self.copies += len(decode(frame).publish)
                self.world.carry(self.name, peer, self._streams[peer], frame)

    # What tests look at.

    def mesh(self, topic: bytes = TOPIC) -> set[str]:
        return self.machine.topics[topic].mesh

    def score(self, peer: Any) -> float:
        return self.machine.scores.score(self.world.now, peer.name)

    def offence(self, peer: Any) -> float:
        return self.machine.scores.of(self.world.now, peer.name).offences

    def refuses(self, peer: Any) -> bool:
        return self.machine.refuses(peer.name, self.world.now)


class Attacker:
    """A peer that sends any bytes, and notes what it gets."""

    def __init__(self, world: World, number: int = 200, *, dialled: bool = False) -> None:
        self._key = SigningKey(number.to_bytes(32, "big"))
        self.name = peer_id(bytes(self._key.verify_key))
        self.author = Author(bytes(self._key.verify_key), self._sign, number)
        self.world = world
        self.received: list[Any] = []
        self.streams: dict[str, list[int]] = {}
        world.nodes[self.name] = self

    def _sign(self, data: bytes) -> bytes:
        return bytes(self._key.sign(data).signature)

    def link(self, other: Any, *, outbound: bool) -> None:
        self.streams[other.name] = []

    def open(self, peer: str) -> bool:
        """Open one more stream to a node."""
        stream = self.world.stream()
        opened = self.world.nodes[peer].accept(self.name, stream)
        if opened:
            self.streams[peer].append(stream)
        return bool(opened)

    def accept(self, _peer: str, _stream: int) -> bool:
        return True

    def ended(self, _peer: str, _stream: int) -> None: ...

    def lose(self, peer: str) -> None:
        self.streams.pop(peer, None)

    def arrive(self, _peer: str, _stream: int, frame: bytes) -> None:
        self.received.append(decode(frame))

    def send(self, node: Node, rpc: Any, stream: int = 0) -> None:
        """Send an RPC, or bytes in place of one, if the node is still connected."""
        raw = rpc if isinstance(rpc, bytes) else rpc.SerializeToString()
        if node.name in self.streams:
            self.world.carry(self.name, node.name, self.streams[node.name][stream], raw)

    def subscribe(self, node: Node, *topics: bytes, stream: int = 0, on: bool = True) -> None:
        named = [Subscription(subscribe=on, topic=topic) for topic in topics or (TOPIC,)]
        self.send(node, Rpc(subscriptions=named), stream)

    def control(self, node: Node, **kinds: Any) -> None:
        rpc = Rpc()
        for kind, items in kinds.items():
            getattr(rpc.control, kind).extend(items)
        self.send(node, rpc)

    def message(self, data: bytes, topic: bytes = TOPIC, **fields: Any) -> Any:
        """A message with a good signature over these fields."""
        message = self.author.signed(topic, data)
        for name, value in fields.items():
            if isinstance(value, list):
                message.ClearField(name)
                getattr(message, name).extend(value)
            else:
                setattr(message, name, value)
        message.signature = self._sign(signed_bytes(message))
        return message

    def publish(self, node: Node, *messages: Any) -> None:
        self.send(node, Rpc(publish=messages))

    @property
    def published(self) -> list[Any]:
        return [message for rpc in self.received for message in rpc.publish]


def frame_of(*messages: Any) -> bytes:
    """One RPC with its length, as a stream carries it."""
    return framed([Rpc(publish=messages).SerializeToString()])
