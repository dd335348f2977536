"""Inbound slots: nobody is kept out by connections that are only held, and useful peers keep theirs."""

import random
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
import trio
from libp2p.pubsub.pb import rpc_pb2
from tests.node.net.conftest import TOPIC
from trio.testing import MockClock

from sapo_node.net.inbound import BY_BLOCK, BY_MESSAGES, IDLE_SECONDS, Slot, least_useful

if TYPE_CHECKING:
    from conftest import Attack, Attacker, Probe, Start, Until

SLOTS = 56


class Slots:
    """The slots of a node that gets one connection after another."""

    def __init__(self) -> None:
        self.taken: list[Slot] = []
        self.brought: dict[str, int] = {}

    def arrive(self, peer: str, block: str, brought: int = 0) -> None:
        self.brought[peer] = brought
        if len(self.taken) == SLOTS:
            evicted = least_useful(self.taken, lambda each: self.brought[each])
            assert evicted is not None
            self.taken.remove(evicted)
        self.taken.append(Slot(peer, block, float(len(self.brought))))

    def count(self, kind: str) -> int:
        return sum(slot.peer_id.startswith(kind) for slot in self.taken)


@pytest.fixture
def slots() -> Slots:
    return Slots()


def test_a_crowd_from_one_block_makes_room_for_peers_from_others(slots: Slots) -> None:
    for number in range(1000):
        slots.arrive(f"crowd {number}", "one")
    for number in range(20):
        slots.arrive(f"honest {number}", f"block {number}")
    for number in range(1000, 2000):
        slots.arrive(f"crowd {number}", "one")
    assert slots.count("honest") == 20


def test_a_crowd_from_a_thousand_blocks_does_not_displace_those_that_were_there_first(slots: Slots) -> None:
    for number in range(SLOTS):
        slots.arrive(f"honest {number}", f"block {number}")
    for number in range(3000):
        slots.arrive(f"crowd {number}", f"other block {number % 1000}")
    assert slots.count("honest") >= SLOTS // 2 - BY_BLOCK


def test_those_that_bring_messages_stay_whatever_the_crowd(slots: Slots) -> None:
    for number in range(SLOTS):
        slots.arrive(f"crowd {number}", f"other block {number}")
    for number in range(BY_MESSAGES):
        slots.arrive(f"honest {number}", "one", brought=1)
    for number in range(3000):
        slots.arrive(f"late {number}", f"new block {number}")
    assert slots.count("honest") == BY_MESSAGES


def test_a_new_connection_always_finds_a_slot(slots: Slots) -> None:
    rng = random.Random(0)
    for number in range(2000):
        slots.arrive(f"peer {number}", f"block {rng.randrange(100)}", brought=rng.randrange(3))
        assert slots.taken[-1].peer_id == f"peer {number}"


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sapo_node.net.host.CONNECTIONS", 14)


async def crowd(nursery: trio.Nursery, attacker: "Attack", address: str, count: int) -> list[str]:
    """So many connections that say nothing, until the test ends; the peers that hold them."""
    peers: list[str] = []

    async def hold(number: int) -> None:
        async with attacker(address, 200 + number) as silent:
            peers.append(silent.peer_id)
            await trio.sleep_forever()

    for number in range(count):
        nursery.start_soon(hold, number)
    with trio.fail_after(30):
        while len(peers) < count:  # noqa: ASYNC110 - they have no common event
            await trio.sleep(0.02)
    return peers


@pytest.mark.usefixtures("few")
async def test_an_honest_peer_finds_a_slot_among_silent_connections(
    start: "Start", attacker: "Attack", until: "Until", nursery: trio.Nursery
) -> None:
    node = await start(1)
    peers = await crowd(nursery, attacker, node.address, 6)
    assert node.links() == set(peers)
    honest = await start(2, bootstrap=(node.address,))
    await until(lambda: node.sees(honest))
    assert len(node.links()) == 6
    nursery.cancel_scope.cancel()


@pytest.fixture
def clock() -> MockClock:
    """Real time, which the test may move on."""
    return MockClock(rate=1.0)


async def idle_seconds_pass(clock: MockClock) -> None:
    for _ in range(2):  # halves: a stall of the node is one of them
        clock.jump(IDLE_SECONDS / 2)
        await trio.sleep(0.1)


@pytest.mark.usefixtures("few")
async def test_a_connection_that_follows_nothing_is_closed(
    start: "Start", attacker: "Attack", until: "Until", clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    node: Probe = await start(1)
    friend = await start(2, bootstrap=(node.address,))
    await until(lambda: node.sees(friend))
    async with attacker(node.address) as silent:
        await idle_seconds_pass(clock)
        why = "it followed no topic of this node and brought no valid message in 20 s"
        await until(lambda: f"closed a connection with {silent.peer_id}: {why}" in caplog.messages)
        assert not silent.linked()
    assert node.sees(friend)


async def say(peer: "Attacker", kind: str) -> None:
    if kind == "publishes":
        await peer.send_rpc(peer.rpc(peer.message(b"m")))
    else:
        topic = TOPIC.replace("rollouts/0", "evidence") if "evidence" in kind else TOPIC
        await peer.send_rpc(rpc_pb2.RPC(subscriptions=[rpc_pb2.RPC.SubOpts(subscribe=True, topicid=topic)]))


async def test_a_peer_that_is_quiet_after_one_rpc_keeps_its_connection(
    start: "Start", attacker: "Attack", until: "Until", clock: MockClock
) -> None:
    node: Probe = await start(1)
    kinds = ["publishes", "follows", "follows evidence alone", "follows, and ends its stream"]
    async with AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(attacker(node.address, 200 + each)) for each in range(len(kinds))]
        for peer, kind in zip(peers, kinds, strict=True):
            await say(peer, kind)
        inbound = node.session.inbound
        await until(lambda: all(inbound._follows(peer.peer_id) or inbound._brought(peer.peer_id) for peer in peers))
        await peers[-1].stream.close()
        await until(lambda: sorted(node.streams()) == [0, 1, 1, 1])
        await idle_seconds_pass(clock)
        assert [kind for peer, kind in zip(peers, kinds, strict=True) if peer.linked()] == kinds
