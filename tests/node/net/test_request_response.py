"""One peer asks another over real libp2p on loopback: what comes back, and what cannot be kept waiting or flooded."""

import pytest
import trio
from libp2p.custom_types import TProtocol
from libp2p.host.exceptions import StreamFailure
from libp2p.network.stream.exceptions import StreamError
from libp2p.utils.varint import encode_varint_prefixed, read_varint_prefixed_bytes

from sapo_node.net import request_response
from sapo_node.net.interface import AskFailed, Malformed, Requests
from sapo_protocol import Layer, RemoteError
from sapo_protocol.limits import MAX_DELIVERY_BYTES, MAX_REQUEST_BYTES

PROTOCOL = "/sapo/2/test/pull"


def answering(answer):
    async def at_once(peer, request):
        return answer(peer, request)

    return Requests(PROTOCOL, at_once)


def echo(_peer, request):
    return b"re: " + request


@pytest.fixture
async def pair(start, until):
    """A node that asks, and one that answers as `of` says."""

    async def of(answer):
        server = await start(1, requests=answering(answer))
        client = await start(2, requests=answering(echo), bootstrap=(server.address,))
        await until(lambda: client.sees(server) and server.sees(client))
        return client.network, server.network

    return of


async def test_a_peer_answers_and_is_told_who_asks(pair):
    client, server = await pair(lambda peer, request: f"{peer} {request.decode()}".encode())
    assert await client.ask(server.peer_id, b"what have you?") == f"{client.peer_id} what have you?".encode()


async def test_the_largest_answer_arrives_whole(pair):
    answer = bytes(range(256)) * (MAX_DELIVERY_BYTES // 256)
    client, server = await pair(lambda _peer, _request: answer)
    assert await client.ask(server.peer_id, b"all") == answer


async def test_both_may_ask_each_other_at_once(pair):
    client, server = await pair(echo)
    answers = {}

    async def ask(one, other):
        answers[one] = await one.ask(other.peer_id, b"you?")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, client, server)
        nursery.start_soon(ask, server, client)
    assert answers == {client: b"re: you?", server: b"re: you?"}


async def test_who_gets_no_answer_is_told_so_and_may_ask_again(pair):
    answers = iter([None, b"yes"])
    client, server = await pair(lambda _peer, _request: next(answers))
    with pytest.raises(AskFailed):
        await client.ask(server.peer_id, b"please")
    assert await client.ask(server.peer_id, b"please") == b"yes"


async def test_a_request_that_is_given_up_makes_room_for_the_next_to_the_same_peer(start, attacker, until):
    """A peer takes requests and answers none. The node asks twice and gives up both."""
    client = await start(2, requests=answering(echo))
    open_streams = set()

    async def take(stream):
        open_streams.add(stream)
        try:
            while await stream.read(1):
                pass
        except StreamError:
            open_streams.discard(stream)

    async with attacker(client.address) as silent:
        silent.host.set_stream_handler(TProtocol(PROTOCOL), take)
        for _ in range(2):
            with trio.move_on_after(0.5):
                await client.network.ask(silent.peer_id, b"anything?")
        await until(lambda: not open_streams)


async def test_an_answer_longer_than_one_may_be_is_not_read_and_is_the_fault_of_the_peer(pair):
    client, server = await pair(lambda _peer, _request: bytes(MAX_DELIVERY_BYTES + 1))
    with pytest.raises(RemoteError) as refused:
        await client.ask(server.peer_id, b"too much")
    assert refused.value.layer is Layer.PULL


async def test_a_peer_that_does_not_know_the_protocol_gives_no_answer(start, until):
    server = await start(1)
    client = await start(2, requests=answering(echo), bootstrap=(server.address,))
    await until(lambda: client.sees(server))
    with pytest.raises(AskFailed):
        await client.network.ask(server.network.peer_id, b"anything?")
    assert client.sees(server)


async def test_nobody_is_dialled_to_be_asked(start):
    server = await start(1, requests=answering(echo))
    client = await start(2, requests=answering(echo))
    with pytest.raises(AskFailed):
        await client.network.ask(server.network.peer_id, b"anything?")
    assert not client.links()


async def stream_to(mallory):
    return await mallory.host.new_stream(mallory.target, [TProtocol(PROTOCOL)])


async def hung_up(stream):
    """Whether the other end ends the stream without a word."""
    with trio.fail_after(3):
        try:
            return not await stream.read(1)
        except StreamError:
            return True


async def turned_away(mallory):
    """Whether another stream ends without a word, maybe while it is still being opened."""
    try:
        return await hung_up(await stream_to(mallory))
    except StreamFailure:
        return True


async def test_a_request_longer_than_one_may_be_ends_the_stream_and_others_are_served(pair, attacker):
    client, server = await pair(echo)
    async with attacker(server.addresses[0]) as mallory:
        stream = await stream_to(mallory)
        await stream.write(encode_varint_prefixed(bytes(MAX_REQUEST_BYTES + 1)))
        assert await hung_up(stream)
        assert await client.ask(server.peer_id, b"still there?") == b"re: still there?"


async def test_a_peer_has_three_requests_answered_at_a_time(pair, attacker):
    _client, server = await pair(echo)
    async with attacker(server.addresses[0]) as mallory:
        first, *others = [await stream_to(mallory) for _ in range(request_response.PEER_REQUESTS)]
        for stream in (first, *others):
            await stream.write(b"\x10")  # the length of a request that does not come
        await trio.sleep(0.2)
        assert await turned_away(mallory)
        await first.write(bytes(16))
        assert await read_varint_prefixed_bytes(first) == echo("", bytes(16))


async def test_a_request_that_does_not_come_to_its_end_loses_the_stream(pair, attacker, monkeypatch):
    monkeypatch.setattr(request_response, "ASKING_SECONDS", 0.5)
    client, server = await pair(echo)
    async with attacker(server.addresses[0]) as mallory:
        stream = await stream_to(mallory)
        await stream.write(b"\x10")
        assert await hung_up(stream)
        again = await stream_to(mallory)
        await again.write(encode_varint_prefixed(b"now"))
        assert await read_varint_prefixed_bytes(again) == b"re: now"
    assert await client.ask(server.peer_id, b"still there?") == b"re: still there?"


async def test_many_who_ask_and_say_nothing_keep_nobody_out(pair, attacker, monkeypatch):
    monkeypatch.setattr(request_response, "AT_ONCE", 2)
    client, server = await pair(echo)
    async with attacker(server.addresses[0], 201) as one, attacker(server.addresses[0], 202) as other:
        for mallory in (one, other):
            await (await stream_to(mallory)).write(b"\x10")
        await trio.sleep(0.2)
        assert await client.ask(server.peer_id, b"me?") == b"re: me?"


async def test_a_peer_that_does_not_finish_its_request_is_reported_and_one_that_does_is_not(
    start, attacker, until, monkeypatch
):
    monkeypatch.setattr(request_response, "ASKING_SECONDS", 0.5)
    server = await start(1, requests=answering(echo))
    async with attacker(server.address, 201) as honest, attacker(server.address, 202) as mallory:
        for peer, request in ((honest, encode_varint_prefixed(b"you?")), (mallory, b"\x10")):
            await (await stream_to(peer)).write(request)
        await until(lambda: server.noticed(Malformed))
    assert server.noticed(Malformed) == [Malformed(mallory.peer_id, 1, "request never finished")]


@pytest.mark.slow
async def test_many_who_do_not_read_their_answers_keep_nobody_out_and_get_no_more_for_a_while(
    pair, attacker, monkeypatch
):
    monkeypatch.setattr(request_response, "AT_ONCE", 2)
    long = bytes(MAX_DELIVERY_BYTES)
    client, server = await pair(lambda _peer, request: long if request == b"all" else b"yes")
    async with attacker(server.addresses[0], 201) as first, attacker(server.addresses[0], 202) as second:
        reads = [await does_not_read(mallory) for mallory in (first, second)]
        await trio.sleep(0.3)
        assert await client.ask(server.peer_id, b"me?") == b"yes"
        assert await client.ask(server.peer_id, b"me again?") == b"yes"
        reads[0].set()
        assert await turned_away(first)


async def does_not_read(mallory):
    """Asks for a long answer, and reads nothing from the connection until the event is set."""
    again = trio.Event()
    (link,) = mallory.host.get_network().get_connections(mallory.target)
    read = link.muxed_conn.secured_conn.read

    async def wait_and_read(count=None):
        await again.wait()
        return await read(count)

    stream = await stream_to(mallory)
    link.muxed_conn.secured_conn.read = wait_and_read
    await stream.write(encode_varint_prefixed(b"all"))
    return again
