"""The messages of the last seconds, which a new follower of a topic gets at once."""

from typing import TYPE_CHECKING

import trio
from libp2p.pubsub.pb import rpc_pb2
from sapo_node.net.seen_cache import message_id

from sapo_node.net.interface import Malformed, PeerGone

if TYPE_CHECKING:
    from tests.node.net.conftest import Attack, Start, Until

TOPIC = "/sapo/2/" + "ab" * 32 + "/rollouts/0"
LARGE = bytes(120_000)


async def test_a_newcomer_reads_the_recent_messages_and_those_that_come_meanwhile(
    start: "Start", until: "Until"
) -> None:
    """More bytes than a stream takes at once wait for the newcomer, and the node publishes on."""
    speaker = await start(1)
    listener = await start(2, bootstrap=(speaker.address,))
    await until(lambda: speaker.sees(listener))

    async def speak() -> None:
        number = 0
        while True:
            await speaker.publish(b"%06d" % number + LARGE)
            number += 1
            await trio.sleep(0.1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(speak)
        await until(lambda: len(listener.heard) > 10)
        newcomers = [await start(number, bootstrap=(speaker.address,)) for number in (3,)]
        await until(lambda: all(len(each.heard) > 20 for each in newcomers))
        nursery.cancel_scope.cancel()
    for each in (speaker, *newcomers):
        assert each.noticed(Malformed) == each.noticed(PeerGone) == []


async def test_a_peer_that_follows_a_topic_again_and_again_gets_a_message_once_in_a_heartbeat(
    start: "Start", attacker: "Attack", until: "Until"
) -> None:
    node = await start(1)
    again = [rpc_pb2.RPC.SubOpts(subscribe=subscribe, topicid=TOPIC) for subscribe in (False, True)]
    async with attacker(node.address) as mallory:
        await node.publish(LARGE)
        for _ in range(100):
            await mallory.send_rpc(rpc_pb2.RPC(subscriptions=again))
            await trio.sleep(0.005)
        await until(lambda: any(rpc.publish for rpc in mallory.received))
        await trio.sleep(0.5)
        assert sum(len(rpc.publish) for rpc in mallory.received) <= 6


async def test_messages_that_are_too_large_for_one_rpc_together_are_sent_in_an_rpc_each(
    start: "Start", attacker: "Attack", until: "Until"
) -> None:
    """A peer need not take an RPC of more than `max_message_bytes` and 2,000 bytes (spec: topics and validation)."""
    node = await start(1)
    wanted = [b"%d" % number + 4 * LARGE for number in range(4)]
    async with attacker(node.address) as peer:
        for data in wanted:
            await node.publish(data)
        ids = [message_id(TOPIC, data) for data in wanted]
        control = rpc_pb2.ControlMessage(iwant=[rpc_pb2.ControlIWant(messageIDs=ids)])
        await peer.send_rpc(rpc_pb2.RPC(control=control))
        await until(lambda: sum(len(rpc.publish) for rpc in peer.received) == len(wanted))
        assert max(rpc.ByteSize() for rpc in peer.received) <= 900_000 + 2_000
