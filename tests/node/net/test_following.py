"""Nodes that follow a part of the shards: what they hear, and how they find each other. Real libp2p on loopback."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import trio
from libp2p.peer.id import ID
from libp2p.pubsub.gossipsub import PROTOCOL_ID_V11
from libp2p.pubsub.pb import rpc_pb2
from libp2p.utils import encode_varint_prefixed
from multiaddr import Multiaddr

from acquainted import answering, asking
from sapo_node.net.interface import ServiceRestarted
from sapo_protocol import load_manifest
from stock_libp2p import stock_host

if TYPE_CHECKING:
    from tests.node.net.conftest import Probe, Start, Until

SHARDS = 4
SOUGHT = 2  # shards that the seekers follow
SPREAD = replace(load_manifest("interop"), shards=SHARDS)


async def three_in_a_row(start: "Start", until: "Until") -> list["Probe"]:
    one = await start(1, shards=SHARDS)
    two = await start(2, shards=SHARDS, bootstrap=(one.address,))
    three = await start(3, shards=SHARDS, bootstrap=(two.address,))
    await until(lambda: two.sees(one, three))
    return [one, two, three]


async def test_a_node_hears_what_it_follows_and_nothing_else(start: "Start", until: "Until") -> None:
    one, two, _ = await three_in_a_row(start, until)
    await two.follow(1, 2)
    for shard in range(SHARDS):
        await one.publish(b"%d" % shard, shard=shard)
    await until(lambda: set(two.heard) == {b"1", b"2"})
    await two.follow(0)
    await until(lambda: one.follows(two) == {0})
    await one.publish(b"again 2", shard=2)
    await one.publish(b"again 0", shard=0)
    await until(lambda: b"again 0" in two.heard)
    assert b"again 2" not in two.heard


async def test_one_publishes_where_one_does_not_follow(start: "Start", until: "Until") -> None:
    one, two, three = await three_in_a_row(start, until)
    await one.follow(0)
    await one.publish(b"m", shard=3)
    await until(lambda: two.heard == [b"m"] and three.heard == [b"m"])


async def test_a_sender_that_does_not_know_yet_that_we_left_is_no_offender(start: "Start", until: "Until") -> None:
    one, two, _ = await three_in_a_row(start, until)
    for number in range(20):
        await two.follow(number % SHARDS)
        await one.publish(b"%d" % number, shard=(number - 1) % SHARDS)
    await trio.sleep(2)
    assert not two.router.refuses(one.network.peer_id)
    assert two.sees(one)


async def test_the_service_follows_the_same_after_a_restart(start: "Start", until: "Until") -> None:
    one, two, _ = await three_in_a_row(start, until)
    await two.follow(1)
    two.router.mcache.history = None  # the next heartbeat fails
    await until(lambda: two.noticed(ServiceRestarted))
    await until(lambda: two.sees(one) and one.follows(two) == {1}, within=30)


class Seeker:
    """A node that looks for company, without what else a node does."""

    probe: "Probe"

    def __init__(self, number: int) -> None:
        self.number = number
        self.shard = number % SOUGHT

    async def join(self, start: "Start", *bootstrap: str) -> None:
        self.probe = await start(
            self.number,
            shards=SHARDS,
            network_id=SPREAD.network_id.hex(),
            requests=answering(SPREAD, lambda: self.probe.network, seed=self.number),
            bootstrap=bootstrap,
        )

    async def seek(self) -> None:
        """Follow one shard, and ask whom it dialled for others, as a node does every few seconds."""
        network = self.probe.network
        await self.probe.follow(self.shard)
        synchroniser = asking(SPREAD, network, shards={self.shard})
        while True:
            for peer in [each.peer_id for each in network.peers() if each.outbound]:
                await synchroniser.meet(peer)
            await trio.sleep(0.3)


def together(crowd: list["Probe"]) -> bool:
    return all(one.sees(*(other for other in crowd if other is not one)) for one in crowd)


async def test_those_who_follow_one_shard_find_each_other_through_one_whom_all_know(
    start: "Start", until: "Until", nursery: trio.Nursery
) -> None:
    way_in, *seekers = [Seeker(number) for number in range(1 + 3 * SOUGHT)]
    await way_in.join(start)
    for seeker in seekers:
        await seeker.join(start, way_in.probe.address)
        nursery.start_soon(seeker.seek)
    crowds = [[each.probe for each in seekers if each.shard == shard] for shard in range(SOUGHT)]
    await until(lambda: all(map(together, crowds)), within=60)
    await way_in.probe.stop()
    one, *others = crowds[1]
    await one.publish(b"among us", shard=1)
    await until(lambda: all(other.heard == [b"among us"] for other in others))


async def test_what_a_peer_left_while_its_connection_ended_is_forgotten(start: "Start", until: "Until") -> None:
    node = await start(1, shards=SHARDS)
    old = await start(2, shards=SHARDS, bootstrap=(node.address,))
    await until(lambda: node.follows(old) == set(range(SHARDS)))
    back = await start(2, shards=1, bootstrap=(node.address,))  # the same key, so the same peer
    await until(back.links)
    await old.stop()
    await until(lambda: back.sees(node))
    await until(lambda: node.follows(back) == {0})


async def say(stream: Any, node: "Probe", *shards: int) -> None:
    """Tell the node on a stream that we follow some of its shards."""
    named = [rpc_pb2.RPC.SubOpts(subscribe=True, topicid=node.topics[shard]) for shard in shards]
    await stream.write(encode_varint_prefixed(rpc_pb2.RPC(subscriptions=named).SerializeToString()))


async def test_what_a_peer_said_on_the_stream_that_began_last_counts_until_that_stream_ends(
    start: "Start", until: "Until"
) -> None:
    node = await start(1, shards=SHARDS)
    host = stock_host(bytes([200]) * 32)
    peer = ID.from_pubkey(host.get_public_key())
    target = ID.from_string(node.network.peer_id)

    def followed() -> set[int]:
        return {shard for shard in range(SHARDS) if peer in node.router.pubsub.peer_topics.get(node.topics[shard], ())}

    async with host.run(listen_addrs=[]):
        await host.get_network().dial_addr(Multiaddr(node.address), target)
        old = await host.new_stream(target, [PROTOCOL_ID_V11])
        await say(old, node, 0)
        await until(lambda: followed() == {0})
        new = await host.new_stream(target, [PROTOCOL_ID_V11])
        await say(new, node, 1)
        await until(lambda: followed() == {1})
        await say(old, node, 2)
        await say(new, node, 3)
        await until(lambda: 3 in followed())
        assert followed() == {1, 3}
        await new.reset()
        await until(lambda: followed() == {0, 2})
        await host.close()
