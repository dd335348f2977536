"""One attacker against one of our nodes; afterwards an honest peer is still served."""

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import trio
from libp2p import YAMUX_PROTOCOL_ID, Yamux, new_host
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.network.exceptions import SwarmException
from libp2p.peer.envelope import PEER_RECORD_ENVELOPE_PAYLOAD_TYPE as RECORD_TYPE
from libp2p.peer.envelope import Envelope, make_unsigned
from libp2p.peer.id import ID
from libp2p.peer.pb import peer_record_pb2
from libp2p.peer.peerstore import create_signed_peer_record
from libp2p.pubsub.gossipsub import PROTOCOL_ID_V11
from libp2p.pubsub.pb import rpc_pb2
from libp2p.security.insecure.transport import PLAINTEXT_PROTOCOL_ID, InsecureTransport
from libp2p.utils import encode_varint_prefixed
from multiaddr import Multiaddr

from sapo_node.net.interface import Malformed, ServiceRestarted
from sapo_node.net.settings import NetworkDefences

if TYPE_CHECKING:
    from tests.node.net.conftest import Attack, Attacker, Probe, Start, Until

HASTY = NetworkDefences(frame_seconds=0.5)
OUR_PLACE = "/ip4/127.0.0.1/tcp/4001"
ANOTHER = create_new_key_pair(bytes(32))
OUR_TOPIC = "/sapo/2/" + "ab" * 32 + "/rollouts/0"


@pytest.fixture
async def victim(start: "Start", until: "Until") -> "AsyncIterator[Probe]":
    """A node with one honest peer; when the attack is over both must still hear each other."""
    node = await start(1)
    honest = await start(2, bootstrap=(node.address,))
    await until(lambda: node.sees(honest) and honest.sees(node))
    yield node
    for number in range(5):
        await honest.publish(b"to the victim %d" % number)
        await node.publish(b"from the victim %d" % number)
    await until(lambda: {b"to the victim %d" % number for number in range(5)} <= set(node.heard))
    await until(lambda: {b"from the victim %d" % number for number in range(5)} <= set(honest.heard))
    assert node.noticed(ServiceRestarted) == []


def offences(node: "Probe", peer_id: str) -> list[str]:
    return [notice.cause for notice in node.noticed(Malformed) if notice.peer_id == peer_id]


def flood() -> bytes:
    messages = [rpc_pb2.Message(data=b"%d" % number, topicIDs=[OUR_TOPIC]) for number in range(9_000)]
    return encode_varint_prefixed(rpc_pb2.RPC(publish=messages).SerializeToString())


async def test_an_rpc_that_no_honest_peer_sends_costs_the_connection(
    victim: "Probe", attacker: "Attack", until: "Until"
) -> None:
    sent = {
        "unreadable RPC": encode_varint_prefixed(b"\xff" * 100),
        "9000 messages in one RPC": flood(),
        "RPC too large": b"\xff\xff\xff\xff\x0f",  # announces 4 GB
    }
    for number, (offence, written) in enumerate(sent.items(), 200):
        async with attacker(victim.address, number) as mallory:
            await mallory.stream.write(written)
            await until(lambda mallory=mallory: not mallory.linked())
        assert offences(victim, mallory.peer_id) == [offence]


async def test_an_rpc_that_is_never_finished_costs_the_connection(
    start: "Start", attacker: "Attack", until: "Until"
) -> None:
    victim = await start(1, defences=HASTY)
    async with attacker(victim.address) as mallory:
        await trio.sleep(1)  # silence between RPCs may last
        assert mallory.linked()
        await mallory.stream.write(b"\x80\x80\x20" + bytes(10))  # half a megabyte is announced
        await until(lambda: not mallory.linked())
    assert offences(victim, mallory.peer_id) == ["RPC never finished"]


async def test_who_keeps_several_streams_waiting_is_refused_and_who_keeps_one_may_come_back(
    start: "Start", attacker: "Attack", until: "Until"
) -> None:
    node = await start(1, defences=HASTY)
    for number, streams in ((200, 1), (201, 4)):
        async with attacker(node.address, number) as mallory:
            more = [await mallory.host.new_stream(mallory.target, [PROTOCOL_ID_V11]) for _ in range(streams - 1)]
            for stream in (mallory.stream, *more):
                await stream.write(b"\x80\x80\x20")
            await until(lambda mallory=mallory: not mallory.linked())
            assert node.session.refuses(mallory.peer_id) == (streams > 1)


def with_a_record(mallory: "Attacker", named: ID) -> Any:
    """A peer record that the key of another peer signed."""
    record = create_signed_peer_record(named, [Multiaddr(OUR_PLACE)], ANOTHER.private_key)
    return rpc_pb2.RPC(senderRecord=record.marshal_envelope())


async def test_a_record_that_its_sender_did_not_sign_is_counted(
    victim: "Probe", attacker: "Attack", until: "Until"
) -> None:
    for number, named in ((200, ID.from_pubkey(ANOTHER.public_key)), (201, None)):
        async with attacker(victim.address, number) as mallory:
            await mallory.send_rpc(with_a_record(mallory, named or mallory.host.get_id()))
            await until(lambda mallory=mallory: offences(victim, mallory.peer_id))
            assert offences(victim, mallory.peer_id) == ["invalid peer record"]


async def test_a_peer_that_sends_nothing_but_garbage_records_is_refused(
    victim: "Probe", attacker: "Attack", until: "Until"
) -> None:
    async with attacker(victim.address) as mallory:
        with suppress(Exception):  # the connection ends while it sends
            record = encode_varint_prefixed(rpc_pb2.RPC(senderRecord=b"\xff").SerializeToString())
            await mallory.stream.write(2_000 * record)
        await until(lambda: victim.session.refuses(mallory.peer_id))


def signed_record(mallory: "Attacker", address: bytes, seq: int) -> bytes:
    record = peer_record_pb2.PeerRecord(peer_id=mallory.host.get_id().to_bytes(), seq=seq)
    record.addresses.add().multiaddr = address
    payload = record.SerializeToString()
    signature = mallory.keys.private_key.sign(make_unsigned("libp2p-peer-record", RECORD_TYPE, payload))
    return bytes(Envelope(mallory.keys.public_key, RECORD_TYPE, payload, signature).marshal_envelope())


async def test_a_record_with_an_address_that_cannot_be_read_ends_nothing(
    victim: "Probe", attacker: "Attack", until: "Until"
) -> None:
    """The library keeps the bytes, and fails when it writes them as a text."""
    async with attacker(victim.address) as mallory:
        topic = rpc_pb2.RPC.SubOpts(subscribe=True, topicid=OUR_TOPIC)
        await mallory.send_rpc(rpc_pb2.RPC(senderRecord=signed_record(mallory, b"\x06\x79", 1), subscriptions=[topic]))
        await until(lambda: mallory.peer_id in {peer.peer_id for peer in victim.network.peers()})
        await mallory.send_rpc(mallory.rpc(mallory.message(b"still heard", topic=OUR_TOPIC)))
        await until(lambda: b"still heard" in victim.heard)


async def test_an_older_record_of_a_peer_is_ignored_and_no_offence(
    victim: "Probe", attacker: "Attack", until: "Until"
) -> None:
    """Its clock was ahead, or two machines have its key."""
    new, old = (Multiaddr(f"/ip4/127.0.0.1/tcp/{port}").to_bytes() for port in (4001, 4002))
    topic = rpc_pb2.RPC.SubOpts(subscribe=True, topicid=OUR_TOPIC)
    async with attacker(victim.address) as mallory:
        await mallory.send_rpc(rpc_pb2.RPC(senderRecord=signed_record(mallory, new, 2)))
        await mallory.send_rpc(rpc_pb2.RPC(senderRecord=signed_record(mallory, old, 1), subscriptions=[topic]))
        await until(lambda: mallory.peer_id in {peer.peer_id for peer in victim.network.peers()})
        assert offences(victim, mallory.peer_id) == []
        assert victim.session.recorded(mallory.peer_id) == ("/ip4/127.0.0.1/tcp/4001",)
    records = victim.session.host.get_peerstore().peer_record_map
    await until(lambda: mallory.host.get_id() not in records)


async def test_a_peer_that_left_is_not_dialled_where_its_record_says_when_a_stream_to_it_is_asked_for(
    victim: "Probe", attacker: "Attack", until: "Until", nursery: trio.Nursery
) -> None:
    visits = []

    async def note_visit(stream: trio.SocketStream) -> None:
        visits.append(stream.socket.getpeername())

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.9")
    nursery.start_soon(trio.serve_listeners, note_visit, [listener])
    elsewhere = Multiaddr(f"/ip4/127.0.0.9/tcp/{listener.socket.getsockname()[1]}")
    async with attacker(victim.address) as mallory:
        identity = mallory.host.get_id()
        record = create_signed_peer_record(identity, [elsewhere], mallory.keys.private_key).marshal_envelope()
        topic = rpc_pb2.RPC.SubOpts(subscribe=True, topicid=OUR_TOPIC)
        await mallory.send_rpc(rpc_pb2.RPC(senderRecord=record, subscriptions=[topic]))
        await until(lambda: mallory.peer_id in {peer.peer_id for peer in victim.network.peers()})
        host = victim.session.host
        assert host.get_peerstore().addrs(identity) == [elsewhere]
        await until(lambda: visits)  # the feeler, while the peer is connected
        visits.clear()
    await until(lambda: mallory.peer_id not in victim.links())
    host.get_peerstore().add_addrs(identity, [elsewhere], 60)  # as where a record is read while its peer leaves
    with pytest.raises(SwarmException):
        await host.new_stream(identity, [PROTOCOL_ID_V11])
    await trio.sleep(2)  # longer than the dialer waits before it seeks who was lost
    assert visits == []


async def test_who_connects_while_an_earlier_connection_is_closed_stays_connected(
    victim: "Probe", attacker: "Attack", until: "Until", nursery: trio.Nursery
) -> None:
    async with attacker(victim.address) as mallory:
        await until(lambda: mallory.peer_id in victim.links())
        nursery.start_soon(victim.network.disconnect, mallory.peer_id, "a test")
        await until(lambda: mallory.peer_id not in victim.links())
        await mallory.host.get_network().dial_addr(Multiaddr(victim.address), mallory.target)
        await until(lambda: mallory.peer_id in victim.links())
        await trio.sleep(1)  # the library takes a tenth of a second to close a connection
        assert mallory.peer_id in victim.links()


async def test_a_dialler_that_offers_only_plaintext_is_refused_and_a_banned_peer_is_disconnected(
    victim: "Probe", attacker: "Attack", until: "Until"
) -> None:
    keys = create_new_key_pair(bytes([201]) * 32)
    host = new_host(
        key_pair=keys,
        sec_opt={PLAINTEXT_PROTOCOL_ID: InsecureTransport(keys)},
        muxer_opt={YAMUX_PROTOCOL_ID: Yamux},
    )
    target = ID.from_string(victim.network.peer_id)
    async with host.run(listen_addrs=[Multiaddr("/ip4/127.0.0.1/tcp/0")]):
        host.get_network().retry_config.max_retries = 0
        with trio.fail_after(15), pytest.raises(Exception, match="security"):
            await host.get_network().dial_addr(Multiaddr(victim.address), target)
    async with attacker(victim.address) as mallory:
        victim.banned.add(mallory.peer_id)
        await mallory.send_rpc(mallory.rpc(mallory.message(b"m")))
        await until(lambda: not mallory.linked())
    assert victim.heard == []


async def test_connections_that_ended_leave_room_for_new_ones(
    start: "Start", attacker: "Attack", until: "Until", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sapo_node.net.host.CONNECTIONS", 10)
    node = await start(1)
    for number in range(12):
        async with attacker(node.address, 200 + number) as mallory:
            assert mallory.linked()
        await until(lambda: not node.links())


async def test_silent_strangers_do_not_shut_out_an_honest_peer(
    start: "Start", until: "Until", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sapo_node.net.inbound.HANDSHAKE_SECONDS", 60.0)
    node = await start(1)
    port = int(node.address.split("/")[4])
    places = [f"127.0.{1 + number % 20}.9" for number in range(200)]
    silent = [await trio.open_tcp_stream("127.0.0.1", port, local_address=place) for place in places]
    honest = await start(3, bootstrap=(node.address,))
    await until(lambda: node.sees(honest))
    for stream in silent:
        await stream.aclose()
