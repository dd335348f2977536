"""A node that relays, and a node that is met through a relay, against peers that abuse both."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest
import trio
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.io.exceptions import IOException
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.peer.id import ID
from libp2p.relay.circuit_v2.pb import circuit_pb2
from libp2p.relay.circuit_v2.pb.circuit_pb2 import HopMessage, StopMessage
from libp2p.relay.circuit_v2.pb.dcutr_pb2 import HolePunch
from multiaddr import Multiaddr

from sapo_node.net import hole_punch, relay
from sapo_node.net.host import TrackedTcp
from sapo_node.net.inbound import ProtocolBroken
from sapo_node.net.interface import Malformed
from sapo_node.net.relay import HOP, STOP, read_message, write_message

if TYPE_CHECKING:
    from conftest import Attack, Attacker, Probe, Start, Until

OK, NO_RESERVATION, NO_ROOM = circuit_pb2.OK, circuit_pb2.NO_RESERVATION, circuit_pb2.RESOURCE_LIMIT_EXCEEDED
NOBODY = ID.from_pubkey(create_new_key_pair(bytes(32)).public_key)


@pytest.fixture
async def node(start: "Start") -> "Probe":
    return await start(1)


@pytest.fixture
async def asker(node: "Probe", attacker: "Attack") -> AsyncIterator["Attacker"]:
    async with attacker(node.address, 200) as connected:
        yield connected


@pytest.fixture
async def guest(node: "Probe", attacker: "Attack") -> AsyncIterator["Attacker"]:
    """A peer that reserved at the node, and takes each circuit."""
    async with attacker(node.address, 201) as connected:
        assert (await ask(connected, HopMessage(type=HopMessage.RESERVE)))[0] == OK
        yield connected


async def ask(peer: "Attacker", request: HopMessage) -> tuple[int, Any]:
    """The status that the node answers, and the stream."""
    stream = await peer.host.new_stream(peer.target, [HOP])
    await write_message(stream, request)
    return (await read_message(stream, HopMessage)).status, stream


def connect(peer_id: ID) -> HopMessage:
    request = HopMessage(type=HopMessage.CONNECT)
    request.peer.id = peer_id.to_bytes()
    return request


def takes_circuits(peer: "Attacker", then: Callable[[Any], Awaitable[None]]) -> None:
    async def take(stream: Any) -> None:
        await read_message(stream, StopMessage)
        await write_message(stream, StopMessage(type=StopMessage.STATUS, status=OK))
        await then(stream)

    peer.host.set_stream_handler(STOP, take)


async def hold(_stream: Any) -> None:
    await trio.sleep_forever()


async def test_a_circuit_carries_no_more_than_its_bytes(asker: "Attacker", guest: "Attacker") -> None:
    arrived = bytearray()
    over = trio.Event()

    async def read(stream: Any) -> None:
        try:
            while data := await stream.read(4_096):
                arrived.extend(data)
        except IOException:
            pass
        over.set()

    takes_circuits(guest, read)
    status, stream = await ask(asker, connect(guest.host.get_id()))
    assert status == OK
    with trio.fail_after(10):
        try:
            while not over.is_set():
                await stream.write(bytes(4_096))
        except IOException:
            await over.wait()
    assert relay.CIRCUIT_BYTES // 2 < len(arrived) <= relay.CIRCUIT_BYTES


async def test_a_circuit_ends_in_time(asker: "Attacker", guest: "Attacker", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "CIRCUIT_SECONDS", 0.5)
    takes_circuits(guest, hold)
    _, stream = await ask(asker, connect(guest.host.get_id()))
    with trio.fail_after(5), pytest.raises(IOException):
        while True:
            if not await stream.read(1):
                raise IOException("closed")


async def test_a_peer_cannot_reserve_for_another(asker: "Attacker") -> None:
    request = connect(NOBODY)
    request.type = HopMessage.RESERVE
    await ask(asker, request)
    assert (await ask(asker, connect(NOBODY)))[0] == NO_RESERVATION


async def test_nobody_is_brought_to_a_peer_that_did_not_reserve(
    node: "Probe", asker: "Attacker", attacker: "Attack"
) -> None:
    async with attacker(node.address, 202) as other:
        assert (await ask(asker, connect(other.host.get_id())))[0] == NO_RESERVATION


async def test_a_reservation_ends_with_the_connection(
    node: "Probe", asker: "Attacker", attacker: "Attack", until: "Until"
) -> None:
    async with attacker(node.address, 202) as other:
        await ask(other, HopMessage(type=HopMessage.RESERVE))
    await until(lambda: other.peer_id not in node.links())
    assert (await ask(asker, connect(other.host.get_id())))[0] == NO_RESERVATION


async def test_a_peer_has_few_circuits_at_one_time(asker: "Attacker", guest: "Attacker") -> None:
    takes_circuits(guest, hold)
    statuses = [(await ask(asker, connect(guest.host.get_id())))[0] for _ in range(relay.PEER_CIRCUITS + 1)]
    assert statuses == [OK] * relay.PEER_CIRCUITS + [NO_ROOM]


async def test_a_peer_that_asks_for_circuits_again_and_again_gets_few(asker: "Attacker", guest: "Attacker") -> None:
    async def leave(stream: Any) -> None:
        await stream.reset()

    takes_circuits(guest, leave)
    granted = 0
    for _ in range(3 * int(relay.CIRCUITS_BURST)):
        status, stream = await ask(asker, connect(guest.host.get_id()))
        granted += status == OK
        await stream.reset()
        await trio.sleep(0.02)  # until the relay has seen the end
    assert granted <= relay.CIRCUITS_BURST + 1


async def test_a_peer_that_asks_for_nonsense_is_charged(node: "Probe", asker: "Attacker", until: "Until") -> None:
    stream = await asker.host.new_stream(asker.target, [HOP])
    await stream.write(b"\x08" + b"\xff" * 8)
    await until(lambda: node.noticed(Malformed))
    assert node.noticed(Malformed)[0].peer_id == asker.peer_id


async def test_a_guest_that_answers_nonsense_costs_nobody(node: "Probe", asker: "Attacker", guest: "Attacker") -> None:
    async def babble(stream: Any) -> None:
        await stream.write(b"\x08" + b"\xff" * 8)

    guest.host.set_stream_handler(STOP, babble)
    assert (await ask(asker, connect(guest.host.get_id())))[0] == circuit_pb2.CONNECTION_FAILED
    assert node.noticed(Malformed) == []


# A node that is brought peers. Its relay is the attacker.


async def offer(bringer: "Attacker", peer_id: ID) -> tuple[int, Any]:
    """Bring a peer to the node. Returns the status that the node answers, and the stream."""
    stream = await bringer.host.new_stream(bringer.target, [STOP])
    message = StopMessage(type=StopMessage.CONNECT)
    message.peer.id = peer_id.to_bytes()
    await write_message(stream, message)
    return (await read_message(stream, StopMessage)).status, stream


@pytest.fixture
def bringer(node: "Probe", asker: "Attacker") -> "Attacker":
    """A peer at which the node has reserved."""
    session = node.network._session
    assert session is not None
    session.hole_punching._relays[asker.peer_id] = "9.9.9.9"
    return asker


async def test_a_peer_at_which_the_node_has_not_reserved_brings_nobody(asker: "Attacker") -> None:
    assert (await offer(asker, NOBODY))[0] == NO_ROOM


async def test_a_relay_brings_few_peers_in_a_short_time(bringer: "Attacker") -> None:
    taken = 0
    for number in range(3 * int(hole_punch.MEETINGS_BURST)):
        status, stream = await offer(bringer, ID.from_pubkey(create_new_key_pair(bytes([number]) * 32).public_key))
        taken += status == OK
        await stream.reset()
        await trio.sleep(0.05)
    assert hole_punch.AT_ONCE <= taken <= hole_punch.MEETINGS_BURST + 1


async def test_a_relay_cannot_take_more_connections_than_those_for_met_peers(
    node: "Probe", bringer: "Attacker"
) -> None:
    session = node.network._session
    assert session is not None
    session.hole_punching._met.update(map(str, range(hole_punch.MOST_MET)))
    assert (await offer(bringer, NOBODY))[0] == NO_ROOM


async def test_a_relay_cannot_speak_for_a_peer(node: "Probe", bringer: "Attacker") -> None:
    status, stream = await offer(bringer, NOBODY)
    assert status == OK
    upgrader = bringer.host.get_network().upgrader
    secured = await upgrader.upgrade_security(RawConnection(stream, True), True, bringer.target)
    with pytest.raises(IOException), trio.fail_after(5):
        await secured.read(1)  # the node would go on with the choice of a muxer


@pytest.mark.parametrize(
    "address",
    [
        "/ip4/127.0.0.1/tcp/22",
        "/ip4/192.168.1.1/tcp/80",
        "/ip4/100.64.0.1/tcp/80",
        "/ip4/9.9.9.9/tcp/0",
        "/dns4/a.b/tcp/1",
    ],
)
def test_only_addresses_of_the_internet_are_dialled(address: str) -> None:
    message = HolePunch(type=HolePunch.CONNECT, ObsAddrs=[Multiaddr(address).to_bytes()])
    assert hole_punch._addresses(message) == []


def test_few_addresses_of_a_peer_are_dialled() -> None:
    many = [Multiaddr(f"/ip4/9.9.9.9/tcp/{port}").to_bytes() for port in range(1, 9)]
    assert len(hole_punch._addresses(HolePunch(type=HolePunch.CONNECT, ObsAddrs=many))) == hole_punch.ADDRESSES


def test_bytes_that_are_no_address_are_dropped() -> None:
    assert hole_punch._addresses(HolePunch(type=HolePunch.CONNECT, ObsAddrs=[b"\xff\xff"])) == []


def test_a_sync_in_place_of_a_connect_breaks_the_protocol() -> None:
    with pytest.raises(ProtocolBroken):
        hole_punch._addresses(HolePunch(type=HolePunch.SYNC))


async def test_a_socket_dialled_from_the_listening_port_is_closed_at_the_end(nursery: trio.Nursery) -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    place = Multiaddr(f"/ip4/127.0.0.1/tcp/{listener.socket.getsockname()[1]}")
    tcp = TrackedTcp(trio.aclose_forcefully)
    raw = await tcp.dial_with_source(place, ("127.0.0.1", 0))
    await tcp.give_up()
    assert raw.stream.stream.socket.fileno() == -1
    await listener.aclose()


async def test_the_same_address_can_be_dialled_from_the_same_port_again_at_once() -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    place = Multiaddr(f"/ip4/127.0.0.1/tcp/{listener.socket.getsockname()[1]}")
    tcp = TrackedTcp(hold)
    first = await tcp.dial_with_source(place, ("127.0.0.1", 0))
    source = first.stream.stream.socket.getsockname()
    await first.close()
    second = await tcp.dial_with_source(place, source)
    assert second.stream.stream.socket.getsockname() == source
    await second.close()
    await listener.aclose()
