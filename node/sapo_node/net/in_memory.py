"""An in-memory swarm with delay, loss and partitions, for tests and simulations.

Time is trio's clock, so a `trio.testing.MockClock` with autojump runs it as fast as the nodes compute. With one seed,
the same messages are lost and delayed in every run, in whatever order trio runs its tasks: each directed link draws
from its own generator, every delay is above zero, and each node handles its arrivals in the order (time, sender,
sequence).
"""

import heapq
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from sapo_node.gossip.seen import Seen, message_id
from sapo_node.gossip.verdict import Verdict
from sapo_node.net.interface import (
    Admit,
    AskFailed,
    Channel,
    KnownPeer,
    NetworkNotice,
    Notify,
    NotRunningError,
    PeerConnected,
    PeerGone,
    PeerInfo,
    Requests,
)

if TYPE_CHECKING:
    from trio_typing import TaskStatus


@dataclass(frozen=True, slots=True)
class LinkQuality:
    """The quality of every link: a delay in seconds, uniform in [shortest, longest], and a loss probability."""

    shortest: float = 0.01
    longest: float = 0.05
    loss: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 < self.shortest <= self.longest:
            raise ValueError("a link delays by more than zero seconds, and `shortest` is at most `longest`")
        if not 0.0 <= self.loss <= 1.0:
            raise ValueError("loss is a probability")


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
        """Links each node to all earlier ones, with `degree` to so many of them, with `star` only to the first."""
        self.quality = quality or LinkQuality()
        self._seed = seed
        self._degree = degree
        self._star = star
        self._nodes: dict[str, MemoryNetwork] = {}
        self._links: dict[tuple[str, str], random.Random] = {}
        self._neighbours: dict[str, list[str]] = {}
        self._side: dict[str, int] = {}

    def join(
        self,
        peer_id: str,
        channels: Mapping[str, Channel],
        *,
        requests: Requests | None = None,
        admit: Admit,
        notify: Notify,
    ) -> "MemoryNetwork":
        """The network of a new node with its `channels` by topic.

        Draws its links now. The node is reachable while its `run` runs. A second join under one peer id replaces the
        stopped node and keeps its links.
        """
        known = self._nodes.get(peer_id)
        if known is not None and known.running:
            raise ValueError(f"{peer_id} is already running")
        node = MemoryNetwork(self, peer_id, channels, requests=requests, admit=admit, notify=notify)
        if known is None:
            others = list(self._nodes)  # in the order of joining
            if self._star:
                others = others[:1]
            elif self._degree is not None and len(others) > self._degree:
                others = random.Random(f"{self._seed}/{peer_id}").sample(others, self._degree)  # noqa: S311 - simulation
            self._neighbours[peer_id] = others
            for other in others:
                self._neighbours[other].append(peer_id)
                for link in ((peer_id, other), (other, peer_id)):
                    self._links[link] = random.Random(f"{self._seed}/{link[0]}/{link[1]}")  # noqa: S311 - simulation
        self._nodes[peer_id] = node
        return node

    def partition(self, *sides: Collection[str]) -> None:
        """Let messages pass only within each side. Nodes that no side names form one more side."""
        self._side = {peer_id: number for number, side in enumerate(sides, start=1) for peer_id in side}
        self.refresh()

    def heal(self) -> None:
        """Undo `partition`. Lost messages stay lost, as in gossip."""
        self.partition()

    def refresh(self) -> None:
        """Report to every node which peers it reaches now. Call it after an `admit` has changed its answer."""
        for node in sorted(self._nodes.values(), key=lambda node: node.peer_id):
            node.refresh()

    def reachable(self, peer_id: str) -> list[str]:
        """The running nodes linked with this one, on its side, where both admit each other; sorted."""
        return sorted(other for other in self._neighbours[peer_id] if self.open(peer_id, other))

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

    def followed_by(self, peer_id: str) -> frozenset[str]:
        """The topics that a node follows."""
        return self._nodes[peer_id].followed

    async def ask(self, source: str, target: str, request: bytes) -> bytes:
        """Carry a request and its answer, each with the delay and loss of any message."""
        for link in ((source, target), (target, source)):
            rng = self._links.get(link)
            if rng is None or not self.open(*link):
                raise AskFailed(f"{target} cannot be reached")
            delay, lost = rng.uniform(self.quality.shortest, self.quality.longest), rng.random() < self.quality.loss
            await trio.sleep(delay)
            if lost:
                raise AskFailed(f"{target} did not answer a request")
        answer = await self._nodes[target].answer(source, request)
        if answer is None:
            raise AskFailed(f"{target} refused a request")
        return answer

    def carry(self, source: str, topic: str, data: bytes, targets: Sequence[str]) -> None:
        """Send a message to the `targets` that follow its topic. Each link draws from its own generator."""
        key = message_id(topic.encode(), data)
        for target in targets:
            if topic not in self._nodes[target].followed:
                continue
            rng = self._links[source, target]
            # Both draws always happen, so that a lost message does not shift the delays of later ones.
            delay = rng.uniform(self.quality.shortest, self.quality.longest)
            if rng.random() >= self.quality.loss:
                self._nodes[target].arrive(trio.current_time() + delay, source, topic, data, key)


class MemoryNetwork:
    """One node's `Network` over a `MemoryHub`. It sends each content that its node accepts once to all peers."""

    def __init__(
        self,
        hub: MemoryHub,
        peer_id: str,
        channels: Mapping[str, Channel],
        *,
        requests: Requests | None,
        admit: Admit,
        notify: Notify,
    ) -> None:
        self.peer_id = peer_id
        self.addresses: tuple[str, ...] = ()
        self.running = False
        self._hub = hub
        self._channels = channels
        self._seen = Seen()
        self._shared = frozenset(topic for topic, channel in channels.items() if channel.everybodys)
        self.followed = frozenset(channels)
        self._requests = requests
        self._admit = admit
        self._notify = notify
        self._connected: dict[str, float] = {}
        # (time of arrival, sender, sequence, ...): a total order, so that every run breaks ties in the same way.
        self._arrivals: list[tuple[float, str, int, str, bytes, bytes]] = []
        self._sequence = 0
        self._news = trio.Event()

    async def run(self, *, task_status: "TaskStatus[None]" = trio.TASK_STATUS_IGNORED) -> None:
        self.running = True
        self.addresses = (f"/memory/{self.peer_id}/p2p/{self.peer_id}",)
        try:
            self._hub.refresh()
            task_status.started()
            while True:
                await self._wait_for_arrival()
                _, sender, _, topic, key, data = heapq.heappop(self._arrivals)
                await self._take(sender, topic, key, data)
        finally:
            self.running = False
            self._arrivals.clear()
            self._hub.refresh()

    async def _wait_for_arrival(self) -> None:
        while (deadline := self._next_arrival()) > trio.current_time():
            self._news = trio.Event()
            with trio.move_on_at(deadline):
                await self._news.wait()

    def _next_arrival(self) -> float:
        """The time of the next arrival. Drops copies of contents that the node was asked about since they were sent."""
        while self._arrivals:
            when, _, _, _, key, _ = self._arrivals[0]
            if not self._seen.knows(key, when):
                return when
            heapq.heappop(self._arrivals)
        return float("inf")

    async def _take(self, sender: str, topic: str, key: bytes, data: bytes) -> None:
        if not self._hub.open(sender, self.peer_id) or self._seen.knows(key, trio.current_time()):
            return
        self._seen.ask(key, trio.current_time())
        verdict = Verdict.BUSY
        try:
            verdict = await self._channels[topic].ask(sender, data)
        finally:
            self._seen.settle(key, verdict, trio.current_time())
        if verdict is Verdict.ACCEPT:
            targets = [peer for peer in self._hub.reachable(self.peer_id) if peer != sender]
            self._hub.carry(self.peer_id, topic, data, targets)

    def arrive(self, when: float, sender: str, topic: str, data: bytes, key: bytes) -> None:
        """Called by the hub: a message with the id `key` will arrive at `when`."""
        self._sequence += 1
        if topic not in self._channels or self._seen.knows(key, when):
            return  # it would be dropped on arrival, as most copies in a flood are
        heapq.heappush(self._arrivals, (when, sender, self._sequence, topic, key, data))
        if self._arrivals[0][0] == when:
            self._news.set()

    def admits(self, peer_id: str) -> bool:
        return self._admit(peer_id)

    def refresh(self) -> None:
        """Called by the hub: report which peers connected and which are gone."""
        now = self._hub.reachable(self.peer_id)
        notices: list[NetworkNotice] = [PeerGone(peer) for peer in sorted(set(self._connected) - set(now))]
        notices += [PeerConnected(peer) for peer in now if peer not in self._connected]
        self._connected = {peer: self._connected.get(peer, trio.current_time()) for peer in now}
        for notice in notices:
            self._notify(notice)

    async def publish(self, topic: str, data: bytes) -> None:
        self._channels[topic].require_fits(data)
        self._seen.settle(message_id(topic.encode(), data), Verdict.ACCEPT, trio.current_time())
        if not self.running:
            raise NotRunningError("the network does not run: start it before publishing")
        self._hub.carry(self.peer_id, topic, data, self._hub.reachable(self.peer_id))
        await trio.lowlevel.checkpoint()

    async def follow(self, topics: Collection[str]) -> None:
        """Follow these topics. Connections do not change: links are drawn when a node joins."""
        self.followed = frozenset(topics) | self._shared
        await trio.lowlevel.checkpoint()

    async def ask(self, peer_id: str, request: bytes) -> bytes:
        return await self._hub.ask(self.peer_id, peer_id, request)

    def try_address(self, by: str, peer_id: str, address: str) -> None:
        """Does nothing: links are drawn when a node joins."""

    async def answer(self, peer_id: str, request: bytes) -> bytes | None:
        """Called by the hub: this node's answer to a request of a peer."""
        return await self._requests.answer(peer_id, request) if self._requests else None

    def send(self, topic: str, data: bytes, targets: Collection[str]) -> None:
        """Send any bytes to the reachable peers in `targets`, as a malicious peer can."""
        self._hub.carry(self.peer_id, topic, data, [peer for peer in self.reachable() if peer in targets])

    def reachable(self) -> list[str]:
        """The peers that this one reaches now, sorted."""
        return self._hub.reachable(self.peer_id)

    def peers(self) -> tuple[PeerInfo, ...]:
        return tuple(
            PeerInfo(
                peer,
                (f"/memory/{peer}/p2p/{peer}",),
                outbound=self.peer_id < peer,
                connected_at=since,
                follows=self._hub.followed_by(peer),
            )
            for peer, since in sorted(self._connected.items())
        )

    def answered(self) -> tuple[KnownPeer, ...]:
        """None: links are drawn when a node joins."""
        return ()

    async def disconnect(self, peer_id: str, why: str) -> None:
        """A peer stays connected if the node still admits it, because links have no state of their own."""
        del peer_id, why
        self._hub.refresh()
        await trio.lowlevel.checkpoint()
