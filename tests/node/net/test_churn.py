"""Nodes whose connections, services and topics come and go at random know each other in the end, and hear each other.

Each sequence is drawn from a seed. What the machine makes of it differs from run to run.
"""

import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
import trio
from tests.node.net.conftest import Probe, free_port, wait_until

from sapo_node.net.interface import NotRunningError

SHARDS = 3
SIZES = (10, 2_000, 100_000)  # bytes of a message
PAUSES = (0.0, 0.0, 0.02, 0.1, 0.3, 1.0)


class Crowd:
    """Two to five nodes that have each other as bootstrap peers."""

    def __init__(self, seed: int, nursery: trio.Nursery) -> None:
        self.draw = random.Random(seed)
        self.count = self.draw.choice([2, 3, 3, 4, 5])
        self._nursery = nursery
        self._ports = [free_port() for _ in range(self.count)]
        self._peers = [Probe(number + 1).network.peer_id for number in range(self.count)]
        self.nodes: dict[int, Probe] = {}
        self.follow = [set(range(SHARDS)) for _ in range(self.count)]
        self.is_talking = True
        self._busy = [trio.Lock() for _ in range(self.count)]
        self._sessions_to_fail = [2] * self.count  # after a third in a minute the network gives up

    async def begin(self) -> None:
        """All at once, so that they dial each other at the same time."""
        async with trio.open_nursery() as starting:
            for number in range(self.count):
                starting.start_soon(self._begin, number)

    async def _begin(self, number: int) -> None:
        where = [f"/ip4/127.0.0.1/tcp/{port}" for port in self._ports]
        others = [f"{where[each]}/p2p/{self._peers[each]}" for each in range(self.count) if each != number]
        node = Probe(number + 1, shards=SHARDS, listen=where[number], bootstrap=tuple(others))
        await self._nursery.start(node.run)
        await node.follow(*self.follow[number])
        self.nodes[number] = node

    async def restart(self, number: int) -> None:
        async with self._busy[number]:
            await self.nodes[number].stop()
            await trio.sleep(self.draw.choice(PAUSES))
            await self._begin(number)

    async def move(self, number: int) -> None:
        """The node begins at another port before it has ended at the first."""
        async with self._busy[number]:
            self._ports[number] = free_port()
            old = self.nodes[number]
            await self._begin(number)
            await trio.sleep(self.draw.choice(PAUSES))
            await old.stop()

    async def change_topics(self, number: int) -> None:
        async with self._busy[number]:
            self.follow[number] = set(self.draw.sample(range(SHARDS), self.draw.randint(1, SHARDS)))
            await self.nodes[number].follow(*self.follow[number])

    async def part(self, number: int) -> None:
        """A node and another one disconnect each other at once."""
        other = self.draw.choice([each for each in self.nodes if each != number])
        async with trio.open_nursery() as both:
            both.start_soon(self.nodes[number].network.disconnect, self._peers[other], "a test")
            both.start_soon(self.nodes[other].network.disconnect, self._peers[number], "a test")

    async def cut(self, number: int) -> None:
        """End a connection of the node below everything that could say goodbye."""
        session = self.nodes[number].network._session
        opened = sorted(session._tcp.opened, key=id) if session else []
        if opened:
            with suppress(OSError):  # it has ended already
                self.draw.choice(opened).stream.socket.shutdown(socket.SHUT_RDWR)

    async def fail(self, number: int) -> None:
        """An exception out of the library, after which the network starts again."""
        if self._sessions_to_fail[number] and self.nodes[number].network._session:
            self._sessions_to_fail[number] -= 1
            self.nodes[number].break_service()

    async def chatter(self) -> None:
        while self.is_talking:
            node = self.nodes[self.draw.randrange(self.count)]
            with suppress(NotRunningError):  # it restarts, or its service fails meanwhile
                await node.publish(self.draw.randbytes(self.draw.choice(SIZES)), shard=self.draw.randrange(SHARDS))
            await trio.sleep(self.draw.choice(PAUSES[2:5]))

    def pairs(self) -> list[tuple[int, int]]:
        return [(one, other) for one in range(self.count) for other in range(self.count) if one != other]

    def is_settled(self) -> bool:
        """No service has yet to fail, and each node knows what each other one follows."""
        whole = all(node.network._session and node.session.machine.heartbeat for node in self.nodes.values())
        return whole and all(
            self.nodes[one].follows(self.nodes[other]) == self.follow[other] for one, other in self.pairs()
        )


@asynccontextmanager
async def crowd_of(seed: int) -> AsyncIterator[Crowd]:
    async with trio.open_nursery() as nursery:
        crowd = Crowd(seed, nursery)
        await crowd.begin()
        yield crowd
        nursery.cancel_scope.cancel()


async def suffer(seed: int) -> None:
    """Play one sequence. Fails if the nodes do not know or hear each other in the end."""
    async with crowd_of(seed) as crowd:
        losses = [crowd.restart, crowd.move, crowd.change_topics, crowd.part, crowd.cut, crowd.fail]
        async with trio.open_nursery() as events:
            events.start_soon(crowd.chatter)
            for _ in range(crowd.draw.randint(3, 13)):
                events.start_soon(crowd.draw.choice(losses), crowd.draw.randrange(crowd.count))
                await trio.sleep(crowd.draw.choice(PAUSES))
            crowd.is_talking = False
        await wait_until(crowd.is_settled, within=40)
        said = {number: b"from %d" % number for number in range(crowd.count)}
        shard = {number: min(follow) for number, follow in enumerate(crowd.follow)}
        for number, node in crowd.nodes.items():
            await node.publish(said[number], shard=shard[number])
        hears = [(one, other) for one, other in crowd.pairs() if shard[other] in crowd.follow[one]]
        await wait_until(lambda: all(said[other] in crowd.nodes[one].heard for one, other in hears))


async def test_after_any_losses_nodes_know_what_each_follows_and_hear_each_other() -> None:
    await suffer(0)


@pytest.mark.slow
@pytest.mark.parametrize("four", range(15))
async def test_after_any_losses_of_many_at_once_they_do(four: int) -> None:
    async with trio.open_nursery() as crowds:  # four at once, so that each waits for others at unexpected moments
        for seed in range(4 * four, 4 * four + 4):
            crowds.start_soon(suffer, seed)
