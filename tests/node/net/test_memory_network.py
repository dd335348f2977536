"""The in-memory network: the same rules as the real one, with delay, loss and partitions to order."""

import hashlib
from dataclasses import dataclass, field

import pytest
import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from trio.testing import MockClock

from sapo_node.gossip.recent import OFFERED_BEATS
from sapo_node.gossip.seen import IGNORED_SECONDS
from sapo_node.gossip.verdict import Verdict
from sapo_node.net.in_memory import REDIAL_SECONDS, MemoryHub, MemoryNetwork
from sapo_node.net.interface import (
    Channel,
    MessageTooLargeError,
    NetworkNotice,
    NotRunningError,
    PeerConnected,
    PeerGone,
)
from sapo_node.net.memory_gossip import LinkQuality
from sapo_node.storage.keys import Identity

TOPIC, LIMIT = "rollouts", 10


def identity(name: str) -> Identity:
    return Identity(Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest()))


def id_of(name: str) -> str:
    return identity(name).peer_id


@dataclass
class Node:
    """A node that answers every message with one verdict and notes what it saw."""

    name: str
    hub: MemoryHub
    verdict: Verdict = Verdict.ACCEPT
    banned: set[str] = field(default_factory=set)
    seen: list[tuple[str, bytes]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    notices: list[NetworkNotice] = field(default_factory=list)
    network: MemoryNetwork = field(init=False)

    def __post_init__(self) -> None:
        self.network = self.hub.join(
            identity(self.name),
            {TOPIC: Channel(self.handle, LIMIT)},
            admit=lambda peer: peer not in map(id_of, self.banned),
            notify=self.notices.append,
        )

    async def publish(self, data: bytes) -> None:
        await self.network.publish(TOPIC, data)

    async def handle(self, sender: str, data: bytes) -> Verdict:
        self.seen.append((sender, data))
        self.times.append(trio.current_time())
        return self.verdict

    @property
    def heard(self) -> list[bytes]:
        return [data for _, data in self.seen]


async def start(nursery: trio.Nursery, *nodes: Node) -> None:
    """Start nodes, and wait until each knows what the others follow."""
    for node in nodes:
        await nursery.start(node.network.run)
    await trio.sleep(10)


def line(hub: MemoryHub, verdict: Verdict) -> tuple[Node, Node, Node]:
    """Three nodes in a row: the ends do not admit each other, so only the middle can pass a message on."""
    left = Node("left", hub, banned={"right"})
    return left, Node("middle", hub, verdict), Node("right", hub, banned={"left"})


@pytest.mark.parametrize(
    ("verdict", "expected"), [(Verdict.ACCEPT, [b"m"]), (Verdict.IGNORE, []), (Verdict.REJECT, [])]
)
async def test_only_what_a_node_accepts_reaches_those_behind_it(
    verdict: Verdict, expected: list[bytes], nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    left, middle, right = line(MemoryHub(), verdict)
    await start(nursery, left, middle, right)
    await left.publish(b"m")
    await trio.sleep(1)
    assert (middle.heard, right.heard) == ([b"m"], expected)


async def test_a_content_is_handled_once_however_many_copies_arrive(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    hub = MemoryHub()
    nodes = [Node(name, hub) for name in "abcde"]
    await start(nursery, *nodes)
    await nodes[0].publish(b"m")
    await trio.sleep(1)
    assert [node.heard for node in nodes] == [[], [b"m"], [b"m"], [b"m"], [b"m"]]


async def test_an_ignored_content_is_asked_about_again_later(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    hub = MemoryHub()
    one, two = Node("one", hub), Node("two", hub, Verdict.IGNORE)
    await start(nursery, one, two)
    for _ in range(2):
        await one.publish(b"m")
        await trio.sleep(IGNORED_SECONDS + 1)
    assert two.heard == [b"m", b"m"]


async def test_a_rejected_content_is_never_asked_about_again(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    hub = MemoryHub()
    one, two = Node("one", hub), Node("two", hub, Verdict.REJECT)
    await start(nursery, one, two)
    for _ in range(2):
        await one.publish(b"m")
        await trio.sleep(IGNORED_SECONDS + 1)
    assert two.heard == [b"m"]


async def test_a_message_takes_the_delay_of_its_link(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    hub = MemoryHub(quality=LinkQuality(shortest=2.0, longest=3.0))
    one, two = Node("one", hub), Node("two", hub)
    await start(nursery, one, two)
    before = trio.current_time()
    await one.publish(b"m")
    await trio.sleep(10)
    assert 2.0 <= two.times[0] - before <= 3.0


async def test_loss_loses_about_its_share(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    hub = MemoryHub(seed=1, quality=LinkQuality(loss=0.25))
    one, two = Node("one", hub), Node("two", hub)
    await start(nursery, one, two)
    for number in range(1000):
        await one.publish(number.to_bytes(2, "big"))
    await trio.sleep(10)
    assert 700 <= len(two.seen) <= 800


async def test_a_partition_stops_messages_until_it_heals(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    hub = MemoryHub()
    one, two = Node("one", hub), Node("two", hub)
    await start(nursery, one, two)
    hub.partition([id_of("one")], [id_of("two")])
    await one.publish(b"lost")
    await trio.sleep(OFFERED_BEATS + 1)
    hub.heal()
    await one.publish(b"heard")
    await trio.sleep(1)
    assert two.heard == [b"heard"]


async def test_a_partition_is_noticed_by_both_sides(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    hub = MemoryHub()
    one, two = Node("one", hub), Node("two", hub)
    await start(nursery, one, two)
    hub.partition([id_of("one")])
    hub.heal()
    await trio.sleep(1)
    for node, other in ((one, id_of("two")), (two, id_of("one"))):
        assert node.notices == [PeerConnected(other), PeerGone(other), PeerConnected(other)]


async def test_a_peer_no_longer_admitted_is_cut_off(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    hub = MemoryHub()
    one, two = Node("one", hub), Node("two", hub)
    await start(nursery, one, two)
    two.banned.add("one")
    await two.network.disconnect("one", "a test")
    await one.publish(b"m")
    await trio.sleep(1)
    assert (two.heard, two.network.peers(), one.network.peers()) == ([], (), ())


async def test_a_handler_that_fails_is_an_ignore(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    hub = MemoryHub()
    left, middle, right = line(hub, Verdict.ACCEPT)

    async def fail(sender: str, data: bytes) -> Verdict:
        raise ValueError("a fault of the node")

    middle.network = hub.join(
        identity("middle"), {TOPIC: Channel(fail, LIMIT)}, admit=lambda _: True, notify=middle.notices.append
    )
    await start(nursery, left, middle, right)
    await left.publish(b"m")
    await trio.sleep(1)
    assert right.heard == []


async def test_a_node_that_returns_is_found_again(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    hub = MemoryHub()
    one, two = Node("one", hub), Node("two", hub)
    await start(nursery, one)
    async with trio.open_nursery() as first_life:
        await start(first_life, two)
        first_life.cancel_scope.cancel()
    two = Node("two", hub)
    await start(nursery, two)
    await one.publish(b"m")
    await trio.sleep(1)
    assert two.heard == [b"m"]


async def test_a_message_above_the_limit_is_refused(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    one = Node("one", MemoryHub())
    await start(nursery, one)
    with pytest.raises(MessageTooLargeError):
        await one.publish(bytes(11))


async def test_publishing_before_the_start_is_refused() -> None:
    with pytest.raises(NotRunningError):
        await Node("one", MemoryHub()).publish(b"m")


async def history(seed: int) -> list[list[tuple[str, bytes]]]:
    """What eight sparsely linked nodes hear, in order, when all of them publish over lossy links."""
    hub = MemoryHub(seed=seed, quality=LinkQuality(loss=0.3), degree=2)
    nodes = [Node(f"node-{number}", hub) for number in range(8)]

    async def speak(node: Node) -> None:
        for number in range(20):
            await node.publish(f"{node.name}/{number}".encode())
            await trio.sleep(0.02)

    async with trio.open_nursery() as nursery:
        await start(nursery, *nodes)
        async with trio.open_nursery() as speakers:
            for node in nodes:
                speakers.start_soon(speak, node)
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
    return [node.seen for node in nodes]


def test_one_seed_gives_one_history() -> None:
    first, second = (trio.run(history, 7, clock=MockClock(autojump_threshold=0)) for _ in range(2))
    assert first == second


def test_another_seed_gives_another_history() -> None:
    first, second = (trio.run(history, seed, clock=MockClock(autojump_threshold=0)) for seed in (7, 8))
    assert first != second


@pytest.mark.parametrize("quality", [{"shortest": 0.0}, {"shortest": 2.0, "longest": 1.0}, {"loss": 1.5}])
def test_an_impossible_link_is_refused(quality: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"link|loss"):
        LinkQuality(**quality)


async def test_a_lossy_link_loses_messages_and_nothing_else(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    hub = MemoryHub(quality=LinkQuality(loss=1.0))
    one, two = Node("one", hub), Node("two", hub)
    await start(nursery, one, two)
    await one.publish(b"m")
    await trio.sleep(1)
    assert two.heard == []
    assert [peer.follows for peer in one.network.peers()] == [{TOPIC}]


async def test_sent_bytes_reach_the_targets_alone(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    hub = MemoryHub()
    liar, *others = (Node(name, hub, Verdict.IGNORE) for name in ("liar", "one", "two"))
    await start(nursery, liar, *others)
    liar.network.send(TOPIC, b"for one", [id_of("one")])
    await trio.sleep(1)
    assert [node.heard for node in others] == [[b"for one"], []]


async def test_a_node_that_broke_the_rules_of_gossip_is_cut_off_and_connected_again(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    hub = MemoryHub()
    liar, node = Node("liar", hub), Node("node", hub)
    await start(nursery, liar, node)
    node.network.perform(node.network.machine.broken(id_of("liar"), "no RPC"))
    gone = node.network.peers()
    await trio.sleep(REDIAL_SECONDS + 1)
    assert (gone, [peer.peer_id for peer in node.network.peers()]) == ((), [id_of("liar")])
