"""What honest nodes of a swarm with many topics tell each other stays within what one peer may send."""

from typing import TYPE_CHECKING

import pytest
import trio
from libp2p.pubsub.pb import rpc_pb2

from sapo_node.net.interface import Malformed, PeerGone
from sapo_protocol.limits import MAX_SHARDS

if TYPE_CHECKING:
    from tests.node.net.conftest import Attack, Probe, Start, Until

HEARTBEATS = 5.0  # seconds, of one each


async def strangers(start: "Start", until: "Until", shards: int) -> "tuple[Probe, Probe]":
    """Two connected nodes, each outside of the meshes of the other."""
    one = await start(1, shards=shards)
    other = await start(2, shards=shards, bootstrap=(one.address,))
    await until(lambda: all(other.network.peer_id in map(str, one.router.mesh[topic]) for topic in one.topics))
    await trio.sleep(1.5)  # until no GRAFT is on its way
    for node in (one, other):
        for topic in node.topics:
            for peer in list(node.router.mesh[topic]):
                node.router._dismiss(peer, topic)
    return one, other


def require_peace(one: "Probe", other: "Probe") -> None:
    for node, peer in ((one, other), (other, one)):
        assert node.noticed(PeerGone) == node.noticed(Malformed) == []
        assert node.router.scores.of(trio.current_time(), peer.network.peer_id).offences == 0


async def test_nodes_that_offer_messages_of_all_topics_keep_each_other(
    start: "Start", until: "Until", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten messages a second keep something to offer on each of 32 topics. Here three heartbeats may come at once."""
    monkeypatch.setattr("sapo_node.net.router.BURST_SECONDS", 3.0)
    one, other = await strangers(start, until, MAX_SHARDS)
    with trio.move_on_after(HEARTBEATS):
        number = 0
        while True:
            await one.publish(b"%d" % number, shard=number % MAX_SHARDS)
            number += 1
            await trio.sleep(2.5 / MAX_SHARDS)
    require_peace(one, other)
    assert len(other.heard) > 32


async def test_a_burst_on_two_topics_is_offered_within_the_limit_of_one_rpc(start: "Start", until: "Until") -> None:
    one, other = await strangers(start, until, 2)
    for number in range(800):
        await one.publish(b"%d" % number, shard=number % 2)
    await until(lambda: len(other.heard) == 800)
    await trio.sleep(1.5)  # a heartbeat
    require_peace(one, other)


async def test_what_is_asked_of_one_peer_in_a_heartbeat_does_not_grow_with_the_topics(
    start: "Start", attacker: "Attack", until: "Until"
) -> None:
    node = await start(1, shards=4)
    async with attacker(node.address) as mallory:
        ids = [number.to_bytes(32, "big") for number in range(100)]
        offers = [rpc_pb2.ControlIHave(topicID=topic, messageIDs=ids) for topic in node.topics]
        await mallory.send_rpc(rpc_pb2.RPC(control=rpc_pb2.ControlMessage(ihave=offers)))
        await until(lambda: any(rpc.control.iwant for rpc in mallory.received))
        await trio.sleep(0.5)
        asked = [key for rpc in mallory.received for iwant in rpc.control.iwant for key in iwant.messageIDs]
        assert len(asked) == 32


async def test_a_peer_that_stalls_breaks_one_promise_whatever_the_number_of_its_topics(
    start: "Start", attacker: "Attack", until: "Until", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sapo_node.net.router.PROMISE_SECONDS", 0.1)
    node = await start(1, shards=MAX_SHARDS)
    async with attacker(node.address) as mallory:
        offers = [rpc_pb2.ControlIHave(topicID=topic, messageIDs=[topic.encode()[-32:]]) for topic in node.topics]
        await mallory.send_rpc(rpc_pb2.RPC(control=rpc_pb2.ControlMessage(ihave=offers)))
        await until(lambda: sum(len(rpc.control.iwant) for rpc in mallory.received) == MAX_SHARDS)
        await trio.sleep(2.5)  # longer than the promises and a heartbeat
        assert 2 < node.router.scores.of(trio.current_time(), mallory.peer_id).offences <= 3
