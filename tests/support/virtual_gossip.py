"""Gossip machines joined by links with delay, on virtual time: no socket, no task, and a seed for each run."""

import random
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from typing import Any

from nacl.signing import SigningKey

from sapo_node.gossip.actions import Action, Disconnect, Offended
from sapo_node.gossip.machine import Machine
from sapo_node.gossip.rpc import Rpc, Subscription, decode, framed
from sapo_node.gossip.seen import Seen
from sapo_node.gossip.signing import Author, signed_bytes
from sapo_node.gossip.verdict import Verdict
from sapo_node.net.memory_gossip import Agenda, Link, LinkQuality, MemoryGossip, connect, hang_up
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
        self.nodes: dict[str, Any] = {}
        self.silent: set[str] = set()
        """Peers that do not read."""
        self._agenda = Agenda()
        self._quality = LinkQuality(*delay)
        self._links: dict[tuple[str, str], Link] = {}

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

    def at(self, seconds: float, call: Callable[[], Any]) -> None:
        self._agenda.add(self.now + seconds, call)

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while (due := self._agenda.next) <= until:
            self.now = due
            self._agenda.pop()()
        self.now = until

    def dial(self, one: Any, other: Any) -> None:
        connect(one, other)

    def hang_up(self, one: Any, other: Any) -> None:
        hang_up(one, other)

    def carry(self, sender: str, to: str, stream: int, frame: bytes) -> None:
        """A frame arrives after a delay, and behind those before it."""
        link = self._links.setdefault((sender, to), Link(self._quality, self.rng))
        self.at(link.arrival(self.now) - self.now, partial(self.nodes[to].arrive, sender, stream, frame))


class Node(MemoryGossip):
    """One machine and its driver."""

    def __init__(self, world: World, number: int, *, topics: Iterable[bytes] = (TOPIC,), **settings: Any) -> None:
        key = SigningKey(number.to_bytes(32, "big"))
        public_key = bytes(key.verify_key)
        author = Author(public_key, lambda data: key.sign(data).signature, number * 10**9)
        topics = list(topics)
        super().__init__(
            peer_id(public_key),
            Machine(author, dict.fromkeys(topics, LIMIT), seen=Seen(), rng=random.Random(number), **settings),
        )
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
        self.machine.follow(topics, 0.0)
        world.nodes[self.name] = self
        world.at(world.rng.uniform(0.2, 1.2), self._beat)

    def _beat(self) -> None:
        self.perform(self.machine.heartbeat(self.world.now))
        self.world.at(1.0, self._beat)

    def now(self) -> float:
        return self.world.now

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        self.world.at(seconds, call)

    def carry(self, peer: str, stream: int, frame: bytes) -> None:
        self.sent_bytes += len(frame)
        self.copies += len(decode(frame).publish)
        self.world.carry(self.name, peer, stream, frame)

    def judge(self, ask: Any, decide: Callable[[Verdict], None]) -> None:
        def answer() -> None:
            self.heard.append(ask.data)
            self.senders.append(ask.peer)
            decide(self.verdict(ask.data))

        self.world.at(self.thinks, answer)

    def report(self, action: Action) -> None:
        match action:
            case Disconnect(peer, why):
                self.left.append((peer, why))
                self.world.hang_up(self, self.world.nodes[peer])
            case Offended(peer, cause):
                self.offences.append((peer, cause))
            case _:
                self.notices.append(action)

    def write(self, peer: str) -> None:
        if peer not in self.world.silent:
            super().write(peer)

    def close(self, other: Any) -> None:
        """Our stream to a peer ends."""
        self.machine.unwritable(other.name)
        other.ended(self.name, self._streams.pop(other.name))

    def ended(self, peer: str, stream: int) -> None:
        self._readings.pop((peer, stream), None)
        self.perform(self.machine.stream_ended(peer, stream, self.world.now))

    def publish(self, data: bytes, topic: bytes = TOPIC) -> None:
        self.perform(self.machine.publish(topic, data, self.world.now))

    def follow(self, *topics: bytes) -> None:
        self.perform(self.machine.follow(topics, self.world.now))

    # What tests look at.

    def has_stream_to(self, other: Any) -> bool:
        return other.name in self._streams

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
        self._numbers = count()
        world.nodes[self.name] = self

    def _sign(self, data: bytes) -> bytes:
        return bytes(self._key.sign(data).signature)

    def link(self, peer: str, *, outbound: bool) -> None:
        self.streams[peer] = []

    def open(self, node: Any) -> bool:
        """Open one more stream to a node."""
        stream = next(self._numbers)
        opened = node.accept(self.name, stream)
        if opened:
            self.streams[node.name].append(stream)
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
