"""Peers that do not read: what waits for all of them together is bounded, and the slowest loses its connection."""

from functools import partial
from signal import SIGSTOP
from typing import TYPE_CHECKING, Any

import pytest
from libp2p.pubsub.pb import rpc_pb2
from sapo_node.net.outbound import BoundedRpcQueue, OutboundQueues

from sapo_node.net import outbound

if TYPE_CHECKING:
    from conftest import Probe, Spawn, Start, Until

SIZE = 10_000


def rpc() -> Any:
    return rpc_pb2.RPC(publish=[rpc_pb2.Message(data=bytes(SIZE))])


class Queues(OutboundQueues):
    """Queues that note who lost its connection."""

    def __init__(self) -> None:
        self.dropped: list[str] = []
        super().__init__(self.dropped.append)

    def add(self, peer: str, count: int) -> None:
        if peer not in self:
            self[peer] = BoundedRpcQueue()
        for _ in range(count):
            self[peer].push(rpc())


@pytest.fixture
def queues(monkeypatch: pytest.MonkeyPatch) -> Queues:
    monkeypatch.setattr(outbound, "ALL_QUEUED_BYTES", 100 * SIZE)
    return Queues()


def test_all_queues_together_hold_at_most_the_budget_and_the_fullest_gives_way(queues: Queues) -> None:
    queues.add("slow", 50)
    for number in range(20):
        queues.add(f"honest {number}", 4)
    assert queues.dropped == ["slow"]
    assert queues.bytes == sum(queue.bytes for queue in queues.values()) < 100 * SIZE
    assert not queues["slow"].push(rpc())


async def test_what_is_sent_or_closed_leaves_the_budget(queues: Queues) -> None:
    queues.add("one", 3)
    queues.add("two", 3)
    await queues["one"].pop()
    queues.pop("two").close()
    assert queues.bytes == queues["one"].bytes == 2 * rpc().ByteSize()


def queues_of(node: "Probe") -> list[str]:
    return [str(peer) for peer in node.router.pubsub.peer_queues]


async def test_a_node_drops_the_peer_that_stops_reading_and_serves_the_others(
    start: "Start", spawn: "Spawn", until: "Until", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbound, "ALL_QUEUED_BYTES", 2_000_000)
    node = await start(1)
    stopped = await spawn(9, bootstrap=[node.address])
    reader = await start(2, bootstrap=(node.address,))
    await until(lambda: stopped.peer_id in queues_of(node) and bool(node.follows(reader)), within=30)
    stopped.process.send_signal(SIGSTOP)
    for number in range(100):
        message = b"%d" % number + bytes(100_000)
        await node.publish(message)
        await until(partial(reader.heard.__contains__, message), within=60)
        if stopped.peer_id not in node.links():
            break
    assert stopped.peer_id not in node.links()
    assert node.sees(reader)
