"""Asking a router for a mapping, with a router of our own on loopback."""

import struct
from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock

from sapo_node.net.pcp import Mapping, MappingError
from sapo_node.net.port_mapping import (
    RENEW_SECONDS,
    Ask,
    Gateway,
    default_gateway,
    first_mapping,
    keep_mapping,
    port_to_map,
)

OUTER = bytes((203, 0, 113, 5))
GRANTED = 1_200


def speaks_pcp(request: bytes) -> bytes:
    """The answer of a PCP router: the outer port is the inner one and 1,000."""
    port = struct.unpack_from("!H", request, 40)[0]
    header = struct.pack("!BBxBII12x", 2, 0x81, 0, GRANTED, 1)
    return header + request[24:40] + struct.pack("!HH", port, port + 1_000) + bytes(10) + b"\xff\xff" + OUTER


def speaks_nat_pmp(request: bytes) -> bytes:
    """The answer of a NAT-PMP router."""
    version, opcode = request[:2]
    if version:
        return struct.pack("!BBHI", 0, 0x80 | opcode, 1, 1)
    if not opcode:
        return struct.pack("!BBHI", 0, 0x80, 0, 1) + OUTER
    port = struct.unpack_from("!H", request, 4)[0]
    return struct.pack("!BBHIHHI", 0, 0x80 | opcode, 0, 1, port, port + 1_000, GRANTED)


Answer = Callable[[bytes], bytes]
StartRouter = Callable[..., Awaitable[Gateway]]


@pytest.fixture
def router(nursery: trio.Nursery) -> StartRouter:
    """`await router(answer, forger=answer)` starts a router, before whose answers a forger sends its own."""

    async def start(answer: Answer, forger: Answer | None = None) -> Gateway:
        link, other = (trio.socket.socket(type=trio.socket.SOCK_DGRAM) for _ in range(2))
        await link.bind(("127.0.0.1", 0))

        async def serve() -> None:
            with link, other:
                while True:
                    request, client = await link.recvfrom(1_500)
                    if forger:
                        await other.sendto(forger(request), client)
                    await link.sendto(answer(request), client)

        nursery.start_soon(serve)
        host, port = link.getsockname()
        return Gateway(host, bytes(12), port)

    return start


async def test_a_pcp_router_maps_the_port(router: StartRouter) -> None:
    gateway = await router(speaks_pcp)
    assert await gateway.ask(4001, 3_600) == Mapping("203.0.113.5", 5001, GRANTED, "PCP")


async def test_a_nat_pmp_router_maps_the_port(router: StartRouter) -> None:
    gateway = await router(speaks_nat_pmp)
    assert await gateway.ask(4001, 3_600) == Mapping("203.0.113.5", 5001, GRANTED, "NAT-PMP")


async def test_an_answer_from_another_address_is_dropped(router: StartRouter) -> None:
    gateway = await router(speaks_pcp, forger=lambda request: speaks_pcp(request)[:-4] + bytes((11, 0, 0, 1)))
    assert (await gateway.ask(4001, 3_600)).host == "203.0.113.5"


async def test_a_router_that_answers_nonsense_gives_no_mapping(router: StartRouter) -> None:
    gateway = await router(lambda _: b"nonsense" * 9)
    with pytest.raises(MappingError, match="does not answer"):
        await gateway.ask(4001, 3_600)


Keep = Callable[[Ask], list[Mapping | None]]


@pytest.fixture
def kept(nursery: trio.Nursery) -> Keep:
    """`kept(way)` keeps a mapping by one way and returns the mappings that it reports."""

    def keep(way: Ask) -> list[Mapping | None]:
        seen: list[Mapping | None] = []
        nursery.start_soon(keep_mapping, [way], 4001, seen.append)
        return seen

    return keep


async def test_a_router_that_restarted_gets_the_mapping_again(kept: Keep, autojump_clock: MockClock) -> None:
    asked = []

    async def way(_port: int, seconds: int) -> Mapping:
        asked.append(seconds)
        return Mapping("203.0.113.5", 5000 + len(asked), seconds, "PCP")

    seen = kept(way)
    await trio.sleep(RENEW_SECONDS + 1)
    assert [each and each.port for each in seen] == [5001, 5002]


async def test_a_mapping_that_does_not_change_is_reported_once(kept: Keep, autojump_clock: MockClock) -> None:
    async def way(_port: int, seconds: int) -> Mapping:
        return Mapping("203.0.113.5", 5001, seconds, "PCP")

    seen = kept(way)
    await trio.sleep(4 * RENEW_SECONDS)
    assert len(seen) == 1


async def test_a_mapping_that_is_lost_is_reported(kept: Keep, autojump_clock: MockClock) -> None:
    left = [Mapping("203.0.113.5", 5001, 3_600, "PCP")]

    async def way(_port: int, _seconds: int) -> Mapping:
        if not left:
            raise MappingError("none")
        return left.pop()

    seen = kept(way)
    await trio.sleep(RENEW_SECONDS + 1)
    assert seen[1:] == [None]


async def test_a_lifetime_of_one_second_does_not_flood_the_router(kept: Keep, autojump_clock: MockClock) -> None:
    asked = []

    async def way(_port: int, _seconds: int) -> Mapping:
        asked.append(trio.current_time())
        return Mapping("203.0.113.5", 5001, 1, "PCP")

    kept(way)
    await trio.sleep(300)
    assert len(asked) <= 11


async def test_a_node_that_stops_removes_its_mapping(autojump_clock: MockClock) -> None:
    asked = []

    async def way(_port: int, seconds: int) -> Mapping:
        asked.append(seconds)
        return Mapping("203.0.113.5", 5001, seconds, "PCP")

    with trio.move_on_after(1):
        await keep_mapping([way], 4001, lambda _: None)
    assert asked[-1] == 0


async def test_a_way_that_fails_is_followed_by_the_next_and_then_comes_last() -> None:
    async def refuses(_port: int, _seconds: int) -> Mapping:
        raise MappingError("refused")

    async def grants(port: int, seconds: int) -> Mapping:
        return Mapping("203.0.113.5", port, seconds, "UPnP")

    ways: list[Ask] = [refuses, grants]
    assert (await first_mapping(ways, 4001, 60)).by == "UPnP"
    assert ways == [grants, refuses]


async def test_without_a_router_each_way_says_why() -> None:
    async def refuses(_port: int, _seconds: int) -> Mapping:
        raise MappingError("refused")

    with pytest.raises(MappingError, match="refused; refused"):
        await first_mapping([refuses, refuses], 4001, 60)


@pytest.mark.parametrize(
    ("listen", "port"),
    [
        (("/ip4/192.168.1.2/tcp/4001",), 4001),
        (("/ip4/127.0.0.1/tcp/4001",), None),
        (("/ip4/169.254.1.2/tcp/4001",), None),
        (("/ip6/::1/tcp/4001", "/ip4/10.0.0.2/tcp/4002"), 4002),
        (("/ip4/192.168.1.2/tcp/4001", "/ip4/9.9.9.9/tcp/4001"), None),
    ],
)
def test_only_a_private_address_needs_a_mapping(listen: tuple[str, ...], port: int | None) -> None:
    assert port_to_map(listen) == port


@pytest.mark.parametrize(
    ("row", "gateway"),
    [
        ("eth0 00000000 0101A8C0 0003 0 0 0 00000000 0 0 0", "192.168.1.1"),
        ("eth0 0001A8C0 00000000 0001 0 0 0 00FFFFFF 0 0 0", ""),
    ],
)
def test_the_default_gateway_is_in_the_table_of_the_kernel(row: str, gateway: str) -> None:
    assert (
        default_gateway(f"Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n{row}\n") == gateway
    )
