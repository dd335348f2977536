"""Each connected peer hears on one stream of ours what we follow, whatever becomes of connections and streams."""

from typing import TYPE_CHECKING, Any

import pytest
import trio
from libp2p.host.exceptions import StreamFailure
from libp2p.peer.id import ID
from libp2p.pubsub.gossipsub import PROTOCOL_ID_V11
from libp2p.pubsub.pb import rpc_pb2
from libp2p.utils import encode_varint_prefixed
from multiaddr import Multiaddr

from sapo_node.net import gossip_streams
from stock_libp2p import stock_host

if TYPE_CHECKING:
    from tests.node.net.conftest import Attack, Attacker, Probe, Start, Until


def own_stream(node: "Probe", peer: "Probe") -> Any:
    """The stream of a node to a peer; None while it is not open."""
    own = node.session._streams._own.get(peer.network.peer_id)
    return own and own.stream


async def test_a_stream_that_could_not_be_opened_is_opened_again(
    start: "Start", until: "Until", monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await start(1)
    host = node.session.host
    open_stream = host.new_stream

    async def fail_once(*_: object) -> None:
        monkeypatch.setattr(host, "new_stream", open_stream)
        raise StreamFailure("the connection ended meanwhile")

    monkeypatch.setattr(host, "new_stream", fail_once)
    peer = await start(2, bootstrap=(node.address,))
    await until(lambda: peer.sees(node))


async def followed(node: "Probe", peer: "Attacker", until: "Until") -> None:
    """The peer follows the node's topic, and has all that the node then publishes."""
    await peer.send_rpc(rpc_pb2.RPC(subscriptions=[rpc_pb2.RPC.SubOpts(subscribe=True, topicid=node.topics[0])]))
    await until(lambda: peer.peer_id in {each.peer_id for each in node.network.peers()})


def records(peer: "Attacker") -> list[bytes]:
    return [rpc.senderRecord for rpc in peer.received if rpc.HasField("senderRecord")]


async def test_a_peer_gets_our_record_once_and_in_the_first_rpc(
    start: "Start", attacker: "Attack", until: "Until"
) -> None:
    node = await start(1)
    async with attacker(node.address) as peer:
        await followed(node, peer, until)
        for number in range(3):
            await node.publish(b"%d" % number)
        await until(lambda: sum(len(rpc.publish) for rpc in peer.received) == 3)
        await until(lambda: any(rpc.HasField("control") for rpc in peer.received))
        assert len(records(peer)) == 1
        assert peer.received[0].HasField("senderRecord")


async def test_a_peer_gets_our_record_again_when_our_addresses_change(
    start: "Start", attacker: "Attack", until: "Until", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gossip_streams, "RECORD_SECONDS", 0.1)
    node = await start(1)
    async with attacker(node.address) as peer:
        await followed(node, peer, until)
        node.session._announce = ("/ip4/127.0.0.1/tcp/9",)
        await until(lambda: len(set(records(peer))) == 2)


async def test_two_connections_at_once_get_one_stream(start: "Start", until: "Until") -> None:
    node, peer = await start(1), await start(2)
    where = peer.network.peer_id, peer.address.partition("/p2p/")[0]
    async with trio.open_nursery() as both:
        for _ in range(2):
            both.start_soon(node.network._dial, *where)
    await until(lambda: node.sees(peer) and peer.sees(node))
    await trio.sleep(0.5)
    assert {*node.streams(), *peer.streams()} == {1}


async def test_a_topic_that_is_left_while_the_stream_is_opened_is_told(
    start: "Start", until: "Until", monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await start(1, shards=2)
    host = node.session.host
    open_stream = host.new_stream

    async def leave_after_the_first_write(*names: object) -> object:
        stream = await open_stream(*names)
        write = stream.write

        async def write_and_leave(data: bytes) -> None:
            stream.write = write
            await write(data)
            await node.follow(0)

        stream.write = write_and_leave
        return stream

    monkeypatch.setattr(host, "new_stream", leave_after_the_first_write)
    peer = await start(2, shards=2, bootstrap=(node.address,))
    await until(lambda: peer.follows(node) == {0})


async def test_what_was_lost_with_a_stream_is_sent_on_the_next(pair: "tuple[Probe, Probe]", until: "Until") -> None:
    node, peer = pair
    await until(lambda: peer.sees(node))
    await node.publish(b"first")
    await until(lambda: peer.heard == [b"first"])
    await own_stream(node, peer).reset()
    await node.publish(b"second")
    await until(lambda: peer.heard == [b"first", b"second"])
    assert peer.streams() == [1]


async def test_a_peer_that_leaves_while_it_has_no_stream_leaves_the_mesh(
    pair: "tuple[Probe, Probe]", until: "Until", monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise StreamFailure("the connection is about to end")

    node, peer = pair
    await until(lambda: own_stream(node, peer) and peer.network.peer_id in node.mesh)
    monkeypatch.setattr(node.session.host, "new_stream", fail)
    node.session._streams._own[peer.network.peer_id].writing.cancel()
    await until(lambda: own_stream(node, peer) is None)
    assert peer.network.peer_id in node.mesh
    await peer.stop()
    await until(lambda: not node.network.peers())
    assert peer.network.peer_id not in node.mesh


async def test_a_stream_that_a_peer_resets_is_opened_again_before_the_next_message(
    start: "Start", until: "Until"
) -> None:
    node = await start(1)
    host = stock_host(bytes([200]) * 32)
    opened: list[Any] = []

    async def reset_the_first(stream: Any) -> None:
        opened.append(stream)
        if len(opened) == 1:
            await stream.read(1)  # the node has told its topics
            await stream.reset()
        else:
            await trio.sleep_forever()

    host.set_stream_handler(PROTOCOL_ID_V11, reset_the_first)
    async with host.run(listen_addrs=[]):
        await host.get_network().dial_addr(Multiaddr(node.address), ID.from_string(node.network.peer_id))
        await until(lambda: len(opened) == 2, within=3)
        await host.close()


async def test_a_peer_that_resets_our_streams_gets_the_next_one_later_each_time(start: "Start", until: "Until") -> None:
    node = await start(1)
    host = stock_host(bytes([200]) * 32)
    opened = []

    async def reset(stream: Any) -> None:
        opened.append(trio.current_time())
        await trio.sleep(0.05)
        await stream.reset()

    host.set_stream_handler(PROTOCOL_ID_V11, reset)
    follow = rpc_pb2.RPC(subscriptions=[rpc_pb2.RPC.SubOpts(subscribe=True, topicid=node.topics[0])])
    async with host.run(listen_addrs=[]):
        target = ID.from_string(node.network.peer_id)
        await host.get_network().dial_addr(Multiaddr(node.address), target)
        stream = await host.new_stream(target, [PROTOCOL_ID_V11])
        await stream.write(encode_varint_prefixed(follow.SerializeToString()))
        await until(node.network.peers)
        begun = trio.current_time()
        for number in range(80):  # each message finds a stream that has been reset
            await node.publish(b"%d" % number)
            await trio.sleep(0.05)
        seconds = trio.current_time() - begun
        await host.close()
    again = len(opened) - 1
    assert again >= 1
    assert 0.5 * (2**again - 1) <= seconds  # after 0.5, 1, 2 ... seconds; without a pause it gets dozens
