"""AutoNAT: a node dials a peer that asks for it, and nobody else."""

from typing import TYPE_CHECKING, Any

import pytest
import trio
from libp2p.host.autonat.pb.autonat_pb2 import Message
from libp2p.identity.identify.pb.identify_pb2 import Identify
from multiaddr import Multiaddr

from sapo_node.net.interface import AskFailed
from sapo_node.net.reachability import AUTONAT, BURST, IDENTIFY
from sapo_node.net.relay import read_message, write_message

if TYPE_CHECKING:
    from conftest import Attack, Attacker, Probe, Start, Until

NOWHERE = "/ip4/127.0.0.1/tcp/9"


@pytest.fixture
async def node(start: "Start") -> "Probe":
    return await start(1)


async def ask(peer: "Attacker", *addresses: str) -> int:
    """The status that the node answers."""
    request = Message(type=Message.DIAL)
    request.dial.peer.id = peer.host.get_id().to_bytes()
    request.dial.peer.addrs.extend(Multiaddr(each).to_bytes() for each in addresses)
    stream = await peer.host.new_stream(peer.target, [AUTONAT])
    await write_message(stream, request)
    return int((await read_message(stream, Message)).dialResponse.status)


def listens_at(peer: "Attacker") -> str:
    return str(peer.host.get_addrs()[0]).partition("/p2p/")[0]


async def test_a_peer_that_can_be_dialled_is_told_so(node: "Probe", attacker: "Attack") -> None:
    async with attacker(node.address) as peer:
        assert await ask(peer, listens_at(peer)) == Message.OK
        assert peer.linked()


async def test_a_peer_that_does_not_listen_there_is_told_so(node: "Probe", attacker: "Attack") -> None:
    async with attacker(node.address) as peer:
        assert await ask(peer, NOWHERE) == Message.E_DIAL_ERROR


async def test_another_machine_than_that_of_the_peer_is_not_dialled(
    node: "Probe", attacker: "Attack", nursery: trio.Nursery
) -> None:
    dialled = []

    async def serve(stream: trio.SocketStream) -> None:
        dialled.append(stream)

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.2")
    nursery.start_soon(trio.serve_listeners, serve, [listener])
    async with attacker(node.address) as peer:
        assert await ask(peer, f"/ip4/127.0.0.2/tcp/{listener.socket.getsockname()[1]}") == Message.E_DIAL_ERROR
    assert dialled == []
    nursery.cancel_scope.cancel()


async def test_a_peer_that_asks_again_and_again_is_refused(node: "Probe", attacker: "Attack") -> None:
    async with attacker(node.address) as peer:
        answers = [await ask(peer, NOWHERE) for _ in range(int(BURST) + 1)]
    assert answers == [Message.E_DIAL_ERROR] * int(BURST) + [Message.E_DIAL_REFUSED]


async def test_a_node_learns_from_a_peer_how_it_is_seen(start: "Start", node: "Probe", until: "Until") -> None:
    other = await start(2, bootstrap=(node.address,), announce=(NOWHERE,))
    await until(lambda: other.sees(node))
    found = await other.network.reachability(node.network.peer_id)
    assert found.seen == f"/ip4/127.0.0.1/tcp/{found.local_port}"
    assert found.asked == (NOWHERE,)
    assert not found.dialled


async def test_the_port_is_that_of_the_connection_on_which_the_peer_was_asked(
    start: "Start", node: "Probe", until: "Until"
) -> None:
    other = await start(2, bootstrap=(node.address,))
    await until(lambda: other.sees(node))
    address, _, peer_id = other.address.rpartition("/p2p/")
    await node.network._session.dial(peer_id, address)
    for here, there in ((node, other), (other, node)):
        found = await here.network.reachability(there.network.peer_id)
        assert found.seen == f"/ip4/127.0.0.1/tcp/{found.local_port}"


@pytest.mark.parametrize("seen", [b"", b"\xff", Multiaddr("/ip4/9.9.9.9/udp/4001").to_bytes()])
async def test_a_peer_that_names_no_address_has_not_answered(node: "Probe", attacker: "Attack", seen: bytes) -> None:
    async def answer(stream: Any) -> None:
        await write_message(stream, Identify(observed_addr=seen))

    async with attacker(node.address) as peer:
        peer.host.set_stream_handler(IDENTIFY, answer)
        with pytest.raises(AskFailed, match="it named no address"):
            await node.network.reachability(peer.peer_id)


async def test_nodes_know_each_other_by_their_addresses_over_ipv6_too(start: "Start", until: "Until") -> None:
    here = await start(1, listen="/ip6/::1/tcp/0")
    there = await start(2, listen="/ip6/::1/tcp/0", bootstrap=(here.address,))
    await until(lambda: there.sees(here) and here.sees(there))
    for one, other in ((here, there), (there, here)):
        assert one.session.sources(other.network.peer_id) == ["::1"]
        assert (await one.network.reachability(other.network.peer_id)).seen.startswith("/ip6/::1/tcp/")


async def test_an_ipv4_address_that_is_mapped_into_ipv6_is_that_ipv4_address(start: "Start", until: "Until") -> None:
    here = await start(1, listen="/ip6/::/tcp/0")  # which takes IPv4, too
    port, peer_id = here.address.split("/")[4], here.network.peer_id
    there = await start(2, bootstrap=(f"/ip4/127.0.0.1/tcp/{port}/p2p/{peer_id}",))
    await until(lambda: here.sees(there))
    assert here.session.sources(there.network.peer_id) == ["127.0.0.1"]


@pytest.mark.parametrize(("announce", "reserves"), [((), True), (("/ip4/9.9.9.9/tcp/4001",), False)])
async def test_a_node_reserves_at_its_peers_although_a_router_says_that_it_forwards(
    start: "Start", node: "Probe", until: "Until", announce: tuple[str, ...], *, reserves: bool
) -> None:
    """The router may lie, or be behind another. The operator is believed."""
    inner = await start(2, listen="/ip4/0.0.0.0/tcp/0", bootstrap=(node.address,), announce=announce)
    await until(lambda: inner.sees(node))
    inner.session.announce_mapped("/ip4/9.9.9.9/tcp/4001")
    assert inner.session.possible_relays() == [node.network.peer_id] * reserves
