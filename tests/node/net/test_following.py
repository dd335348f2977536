"""Nodes that follow a part of the shards: what they hear, and how they find each other. Real libp2p on loopback."""

from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from acquainted import answering, asking
from sapo_node.net.interface import ServiceRestarted
from sapo_protocol import load_manifest

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


async def test_the_service_follows_the_same_after_a_restart(start: "Start", until: "Until") -> None:
    one, two, _ = await three_in_a_row(start, until)
    await two.follow(1)
    two.break_service()
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
