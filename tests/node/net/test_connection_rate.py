"""The rate of new connections: nobody has the node do handshakes as fast as he can ask for them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from sapo_node.net.connection_rate import (
    ALL_CONNECTIONS_BURST,
    CONNECTION_BURST,
    CONNECTION_RATE,
    REMEMBERED_BLOCKS,
    ConnectionRate,
)
from sapo_node.net.inbound import HANDSHAKES, Inbound
from sapo_node.net.settings import NETWORK_DEFENDED

if TYPE_CHECKING:
    from tests.node.net.conftest import Attack, Start, Until

GREETING = b"\x13/multistream/1.0.0\n"


async def answered(address: str, source: str) -> bool:
    """Whether a node answers the first bytes of a handshake that comes from this address."""
    port = int(address.split("/")[4])
    try:
        async with await trio.open_tcp_stream("127.0.0.1", port, local_address=source) as stream:
            await stream.send_all(GREETING)
            return await stream.receive_some(64) != b""
    except trio.BrokenResourceError:
        return False


async def test_one_address_block_gets_its_burst_and_then_its_rate_and_costs_no_other_block_a_connection(
    start: "Start",
) -> None:
    node = await start(1)
    began = trio.current_time()
    taken = [await answered(node.address, f"127.9.0.{1 + number % 250}") for number in range(400)]
    passed = trio.current_time() - began
    assert CONNECTION_BURST <= sum(taken) <= CONNECTION_BURST + 1 + CONNECTION_RATE * passed
    assert await answered(node.address, "127.9.1.1")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sapo_node.net.connection_rate.ALL_CONNECTIONS_RATE", 0.01)
    monkeypatch.setattr("sapo_node.net.connection_rate.ALL_CONNECTIONS_BURST", 20.0)


@pytest.mark.usefixtures("small")
async def test_many_blocks_together_have_a_rate(start: "Start") -> None:
    node = await start(1)
    taken = [await answered(node.address, f"127.9.{number}.1") for number in range(40)]
    assert sum(taken) == 20


@pytest.mark.usefixtures("small")
async def test_a_peer_that_brought_messages_comes_back_when_strangers_use_up_the_rate_of_all(
    start: "Start", until: "Until"
) -> None:
    node = await start(1)
    friend = await start(2, bootstrap=(node.address,))
    await until(lambda: node.sees(friend) and friend.sees(node))
    await friend.publish(b"useful")
    await until(lambda: node.heard)
    await friend.stop()
    await until(lambda: not node.links())
    for number in range(40):
        await answered(node.address, f"127.9.{number}.1")
    assert not await answered(node.address, "127.9.99.1")
    assert await answered(node.address, "127.0.0.1")


@pytest.mark.usefixtures("small")
async def test_a_peer_that_brought_nothing_is_bound_by_the_rate_of_all(
    start: "Start", attacker: "Attack", until: "Until"
) -> None:
    node = await start(1)
    async with attacker(node.address):
        await until(node.links)
    await until(lambda: not node.links())
    for number in range(40):
        await answered(node.address, f"127.9.{number}.1")
    assert not await answered(node.address, "127.0.0.1")


def test_the_block_that_was_used_longest_ago_is_forgotten() -> None:
    rate = ConnectionRate()
    for number in range(REMEMBERED_BLOCKS + 1):
        rate.remember(f"10.{number // 250}.{number % 250}.1")
    for number in range(int(ALL_CONNECTIONS_BURST)):
        rate.admits(f"11.0.{number}.1", 0.0)
    assert not rate.admits("10.0.0.1", 0.0)
    assert rate.admits("10.0.1.1", 0.0)


class SilentSwarm:
    """A swarm whose handshakes never end."""

    common_stream_handler = None

    def __init__(self) -> None:
        self.begun = 0

    def set_stream_handler(self, handler: object) -> None: ...

    async def upgrade_inbound_raw_conn(self, _raw: object, _where: str) -> None:
        self.begun += 1
        await trio.sleep_forever()


@dataclass
class Socket:
    host: str

    def get_remote_address(self) -> tuple[str, int]:
        return self.host, 4001

    async def close(self) -> None: ...


@pytest.mark.parametrize(("prefix", "begun"), [("2001:db8::", HANDSHAKES), ("192.0.2.", HANDSHAKES + 1)])
async def test_all_addresses_of_an_ipv6_machine_share_its_unfinished_handshakes(
    prefix: str, begun: int, nursery: trio.Nursery
) -> None:
    swarm = SilentSwarm()
    taking = Inbound(
        swarm,
        8,
        NETWORK_DEFENDED,
        refuses=lambda _: False,
        offended=lambda *_: None,
        follows=lambda _: True,
        brought=lambda _: 0,
    )
    for number in range(HANDSHAKES + 1):
        nursery.start_soon(taking.take_connection, Socket(f"{prefix}{number}"))
    await trio.testing.wait_all_tasks_blocked()
    assert swarm.begun == begun
    nursery.cancel_scope.cancel()
