"""An in-memory swarm with delay, loss and partitions, for tests and simulations. Its nodes run the gossip machine.

Time is trio's clock, so a `trio.testing.MockClock` with autojump runs it as fast as the nodes compute. With one seed,
the same messages are lost and delayed in every run, in whatever order trio runs its tasks: each directed link draws
from its own generator, every delay is above zero, and each node handles its arrivals in the order (time, sender,
sequence).
"""

import random
from collections import deque
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING

import trio

from sapo_node.gossip.actions import Action, Ask, Disconnect, Joined
from sapo_node.gossip.machine import Machine
from sapo_node.gossip.rpc import Rpc, decode
from sapo_node.gossip.seen import Seen
from sapo_node.gossip.signing import Author
from sapo_node.gossip.verdict import Verdict
from sapo_node.net.interface import (
    Admit,
    AskFailed,
    Channel,
    KnownPeer,
    Notify,
    NotRunningError,
    PeerConnected,
    PeerGone,
    PeerInfo,
    Requests,
)
from sapo_node.net.memory_gossip import Agenda, Call, Link, LinkQuality, MemoryGossip, connect, hang_up
from sapo_node.storage.keys import Identity

if TYPE_CHECKING:
    from trio_typing import TaskStatus

HEARTBEAT_SECONDS = 1.0
REDIAL_SECONDS = 10.0
"""Seconds after which nodes connect again at the latest, once both admit each other."""


class MemoryHub:
    """The links between the nodes, with their delay and loss."""

    def __init__(
        self,
        *,
        seed: int = 0,
        quality: LinkQuality | None = None,
        degree: int | None = None,
        star: bool = False,
    ) -> None:
        """Each node dials all earlier ones, with `degree` so many of them, with `star` only the first."""
        self.quality = quality or LinkQuality()
        self._seed = seed
        self._degree = degree
        self._star = star
        self._nodes: dict[str, MemoryNetwork] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._neighbours: dict[str, dict[str, bool]] = {}
        """By node: its neighbours, each with True if the node dials it."""
        self._side: dict[str, int] = {}

    def join(
        self,
        identity: Identity,
        channels: Mapping[str, Channel],
        *,
        requests: Requests | None = None,
        admit: Admit,
        notify: Notify,
    ) -> "MemoryNetwork":
        """The network of a new node with its `channels` by topic.

        Draws its links now. The node is reachable while its `run` runs. A second join under one key replaces the
        stopped node and keeps its links.
        """
        peer_id = identity.peer_id
        known = self._nodes.get(peer_id)
        if known is not None and known.running:
            raise ValueError(f"{peer_id} is already running")
        node = MemoryNetwork(
            self,
            peer_id,
            channels,
            author=Author(identity.public_key, identity.sign, 0),
            rng=self._rng("gossip", peer_id),
            requests=requests,
            admit=admit,
            notify=notify,
        )
        if known is None:
            others = list(self._nodes)  # in the order of joining
            if self._star:
                others = others[:1]
            elif self._degree is not None and len(others) > self._degree:
                others = self._rng(peer_id).sample(others, self._degree)
            self._neighbours[peer_id] = dict.fromkeys(others, True)
            for other in others:
                self._neighbours[other][peer_id] = False
                for link in ((peer_id, other), (other, peer_id)):
                    self._links[link] = Link(self.quality, self._rng(*link))
        self._nodes[peer_id] = node
        return node

    def _rng(self, *names: str) -> random.Random:
        return random.Random("/".join([str(self._seed), *names]))  # noqa: S311 - simulation

    def partition(self, *sides: Collection[str]) -> None:
        """Let messages pass only within each side. Nodes that no side names form one more side."""
        self._side = {peer_id: number for number, side in enumerate(sides, start=1) for peer_id in side}
        for peer_id in self._nodes:
            self.refresh(peer_id)

    def heal(self) -> None:
        """Undo `partition`. Lost messages stay lost, as in gossip."""
        self.partition()

    def refresh(self, peer_id: str) -> None:
        """Connect a node with its neighbours on its side, where both run and admit each other, and with no others."""
        here = self._nodes[peer_id]
        for other, dials in self._neighbours[peer_id].items():
            there = self._nodes[other]
            if self.open(peer_id, other) == here.is_linked(other):
                continue
            if here.is_linked(other):
                hang_up(here, there)
            else:
                connect(*((here, there) if dials else (there, here)))

    def open(self, source: str, target: str) -> bool:
        """Return whether a message can pass from source to target now."""
        here, there = self._nodes[source], self._nodes[target]
        return (
            here.running
            and there.running
            and self._side.get(source, 0) == self._side.get(target, 0)
            and here.admits(target)
            and there.admits(source)
        )

    async def ask(self, source: str, target: str, request: bytes) -> bytes:
        """Carry a request and its answer, each with the delay and loss of any message."""
        for ends in ((source, target), (target, source)):
            link = self._links.get(ends)
            if link is None or not self.open(*ends):
                raise AskFailed(f"{target} cannot be reached")
            delay, lost = link.delay(), link.loses()
            await trio.sleep(delay)
            if lost:
                raise AskFailed(f"{target} did not answer a request")
        answer = await self._nodes[target].answer(source, request)
        if answer is None:
            raise AskFailed(f"{target} refused a request")
        return answer

    def carry(self, source: str, target: str, stream: int, frame: bytes) -> None:
        """Send an RPC to a connected node. A lossy link loses messages; all else that an RPC holds arrives."""
        link, there = self._links[source, target], self._nodes[target]
        if self.quality.loss:
            rpc = decode(frame)
            kept = [message for message in rpc.publish if not link.loses()]
            rpc.ClearField("publish")
            rpc.publish.extend(kept)
            frame = rpc.SerializeToString()
        there.expect(source, stream, frame, link.arrival(trio.current_time()))

    def hang_up(self, one: str, other: str) -> None:
        """End the connection of two nodes. A later `refresh` connects them again, if both still admit each other."""
        hang_up(self._nodes[one], self._nodes[other])


class MemoryNetwork(MemoryGossip):
    """One node's `Network` over a `MemoryHub`."""

    def __init__(
        self,
        hub: MemoryHub,
        peer_id: str,
        channels: Mapping[str, Channel],
        *,
        author: Author,
        rng: random.Random,
        requests: Requests | None,
        admit: Admit,
        notify: Notify,
    ) -> None:
        limits = {topic.encode(): channel.max_bytes for topic, channel in channels.items()}
        super().__init__(peer_id, Machine(author, limits, seen=Seen(), rng=rng))
        self.peer_id = peer_id
        self.addresses: tuple[str, ...] = ()
        self.running = False
        self._hub = hub
        self._author = author
        self._rng = rng
        self._channels = channels
        self._shared = frozenset(topic for topic, channel in channels.items() if channel.everybodys)
        self._followed = frozenset(channels)
        self._requests = requests
        self._admit = admit
        self._notify = notify
        self._members: dict[str, float] = {}
        """The peers that follow a topic, each with the time at which it named the first."""
        self._agenda = Agenda()
        self._asked: deque[tuple[Ask, Callable[[Verdict], None]]] = deque()
        self._news = trio.Event()

    async def run(self, *, task_status: "TaskStatus[None]" = trio.TASK_STATUS_IGNORED) -> None:
        self.running = True
        self.addresses = (f"/memory/{self.peer_id}/p2p/{self.peer_id}",)
        self._follow()
        self.after(self._rng.uniform(0.0, HEARTBEAT_SECONDS), self._beat)
        try:
            self._redial()
            task_status.started()
            while True:
                await self._wait()
                self._agenda.pop()()
                while self._asked:
                    await self._answer(*self._asked.popleft())
        finally:
            self.running = False
            self._hub.refresh(self.peer_id)

    async def _wait(self) -> None:
        """Wait until a call is due."""
        while (due := self._agenda.next) > trio.current_time():
            self._news = trio.Event()
            with trio.move_on_at(due):
                await self._news.wait()

    def _beat(self) -> None:
        self.perform(self.machine.heartbeat(self.now()))
        self.after(HEARTBEAT_SECONDS, self._beat)

    def _redial(self) -> None:
        self._hub.refresh(self.peer_id)
        self.after(REDIAL_SECONDS, self._redial)

    # The driver.

    def now(self) -> float:
        return trio.current_time()

    def after(self, seconds: float, call: Call) -> None:
        self._at(self.now() + seconds, call)

    def _at(self, when: float, call: Call, origin: str = "") -> None:
        self._agenda.add(when, call, origin)
        if self._agenda.next == when:
            self._news.set()

    def carry(self, peer: str, stream: int, frame: bytes) -> None:
        self._hub.carry(self.peer_id, peer, stream, frame)

    def expect(self, source: str, stream: int, frame: bytes, when: float) -> None:
        """Called by the hub: an RPC will arrive at `when`."""
        self._at(when, partial(self._receive, source, stream, frame), source)

    def _receive(self, source: str, stream: int, frame: bytes) -> None:
        if self.is_linked(source) and not self.admits(source):
            self._hub.hang_up(self.peer_id, source)
        self.arrive(source, stream, frame)

    def judge(self, ask: Ask, decide: Callable[[Verdict], None]) -> None:
        self._asked.append((ask, decide))

    async def _answer(self, ask: Ask, decide: Callable[[Verdict], None]) -> None:
        verdict = Verdict.BUSY
        try:
            if self.admits(ask.peer):
                verdict = await self._channels[ask.topic.decode()].ask(ask.peer, ask.data)
        finally:
            decide(verdict)

    def report(self, action: Action) -> None:
        match action:
            case Disconnect(peer):
                if self.is_linked(peer):
                    self._hub.hang_up(self.peer_id, peer)
            case Joined(peer):
                self._members[peer] = self.now()
                self._notify(PeerConnected(peer))

    def lose(self, peer: str) -> None:
        super().lose(peer)
        if self._members.pop(peer, None) is not None:
            self._notify(PeerGone(peer))

    # The node.

    def is_linked(self, peer_id: str) -> bool:
        """Return whether a peer is connected."""
        return peer_id in self._streams

    def admits(self, peer_id: str) -> bool:
        """Return whether a peer may be connected: the node admits it, and it did not flood lately."""
        return self._admit(peer_id) and not self.machine.refuses(peer_id, self.now())

    async def publish(self, topic: str, data: bytes) -> None:
        self._channels[topic].require_fits(data)
        if not self.running:
            raise NotRunningError("the network does not run: start it before publishing")
        self.perform(self.machine.publish(topic.encode(), data, self.now()))
        await trio.lowlevel.checkpoint()

    async def follow(self, topics: Collection[str]) -> None:
        """Follow these topics. Connections do not change: links are drawn when a node joins."""
        self._followed = frozenset(topics) | self._shared
        if self.running:
            self._follow()
        await trio.lowlevel.checkpoint()

    def _follow(self) -> None:
        self.perform(self.machine.follow([topic.encode() for topic in self._followed], self.now()))

    async def ask(self, peer_id: str, request: bytes) -> bytes:
        return await self._hub.ask(self.peer_id, peer_id, request)

    def try_address(self, by: str, peer_id: str, address: str) -> None:
        """Does nothing: links are drawn when a node joins."""

    async def answer(self, peer_id: str, request: bytes) -> bytes | None:
        """Called by the hub: this node's answer to a request of a peer."""
        return await self._requests.answer(peer_id, request) if self._requests else None

    def send(self, topic: str, data: bytes, targets: Collection[str]) -> None:
        """Send any bytes to the connected peers in `targets`, as a malicious peer can."""
        frame = Rpc(publish=[self._author.signed(topic.encode(), data)]).SerializeToString()
        for peer in self.reachable():
            if peer in targets:
                self.carry(peer, self._streams[peer], frame)

    def reachable(self) -> list[str]:
        """The connected peers, sorted."""
        return sorted(self._streams)

    def peers(self) -> tuple[PeerInfo, ...]:
        return tuple(
            PeerInfo(
                peer,
                (f"/memory/{peer}/p2p/{peer}",),
                outbound=self.machine.peers[peer].outbound,
                connected_at=since,
                follows=frozenset(topic.decode() for topic in self.machine.peers[peer].follows),
            )
            for peer, since in sorted(self._members.items())
        )

    def answered(self) -> tuple[KnownPeer, ...]:
        """None: links are drawn when a node joins."""
        return ()

    async def disconnect(self, peer_id: str, why: str) -> None:
        """End the connection if the node no longer admits the peer."""
        del peer_id, why
        self._hub.refresh(self.peer_id)
        await trio.lowlevel.checkpoint()
