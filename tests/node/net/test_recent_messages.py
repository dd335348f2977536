"""The messages of the last seconds, which a new follower of a topic gets at once."""

from typing import TYPE_CHECKING

import trio
from libp2p.pubsub.pb import rpc_pb2

from sapo_node.net.interface import Malformed, PeerGone

if TYPE_CHECKING:
    from tests.node.net.conftest import Attack, Start, Until

TOPIC = "/sapo/1/" + "ab" * 32 + "/rollouts/0"
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
        newcomers = [await start(number, bootstrap=(speaker.address,)) for number in (3, 4, 5)]
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
