"""Connections that are dead, and connections whose peer breaks the rules of yamux: each is bounded or ended."""

import struct
import time
from collections.abc import AsyncIterator
from itertools import count
from signal import SIGCONT, SIGSTOP
from typing import TYPE_CHECKING, Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from libp2p.stream_muxer.yamux import yamux as library

from sapo_node.net import yamux
from sapo_node.net.interface import PeerGone, Requests
from sapo_node.net.yamux import BoundedYamux, grant_by_halves

if TYPE_CHECKING:
    from tests.node.net.conftest import Attack, Attacker, Probe, Spawn, Start, Until

HALF = yamux.WINDOW_BYTES // 2
TICK = 0.5  # seconds, in place of ten
IDENTIFY = b"\x13/multistream/1.0.0\n\x0f/ipfs/id/1.0.0\n"


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yamux, "TICK_SECONDS", TICK)
    monkeypatch.setattr(library, "RTT_MEASURE_INTERVAL", TICK)


def connection(node: "Probe", peer: str) -> BoundedYamux:
    """The connection of a node with a peer."""
    service = node.network._session
    assert service is not None
    (link,) = (link for link in service.swarm.get_connections() if str(link.muxed_conn.peer_id) == peer)
    assert isinstance(link.muxed_conn, BoundedYamux)
    return link.muxed_conn


@pytest.mark.usefixtures("fast")
async def test_a_peer_that_is_stopped_is_disconnected_and_leaves_the_mesh(
    start: "Start", spawn: "Spawn", until: "Until"
) -> None:
    node = await start(1)
    peer = await spawn(9, bootstrap=[node.address])
    await until(lambda: peer.peer_id in node.mesh)
    peer.process.send_signal(SIGSTOP)
    await until(lambda: node.noticed(PeerGone), within=10 * TICK + 10)
    assert node.network.peers() == ()
    assert peer.peer_id not in node.links()
    assert peer.peer_id not in node.mesh


@pytest.mark.usefixtures("fast")
@pytest.mark.slow
async def test_a_peer_that_stalls_for_two_ticks_stays_connected(start: "Start", spawn: "Spawn", until: "Until") -> None:
    node = await start(1)
    peer = await spawn(9, bootstrap=[node.address])
    await until(node.network.peers)
    peer.process.send_signal(SIGSTOP)
    await trio.sleep(2 * TICK)
    peer.process.send_signal(SIGCONT)
    await trio.sleep(8 * TICK)
    assert node.noticed(PeerGone) == []


@pytest.mark.usefixtures("fast")
@pytest.mark.slow
async def test_a_stall_of_this_node_ends_no_connection(start: "Start", spawn: "Spawn", until: "Until") -> None:
    node = await start(1)
    await spawn(9, bootstrap=[node.address])
    await until(node.network.peers)
    time.sleep(10 * TICK)  # noqa: ASYNC251 - this is the stall
    await trio.sleep(2 * TICK)
    assert node.noticed(PeerGone) == []


def frame(kind: int, flags: int, stream: int, length: int, body: bytes = b"") -> bytes:
    return struct.pack(library.YAMUX_HEADER_FORMAT, 0, kind, flags, stream, length) + body


@pytest.fixture
async def raw(start: "Start", attacker: "Attack") -> "AsyncIterator[tuple[Probe, Attacker, Any]]":
    """A node, an attacker that is connected to it, and a function that writes the attacker's frames."""
    node = await start(1)
    async with attacker(node.address) as mallory:
        (link,) = mallory.host.get_network().get_connections(mallory.target)
        yield node, mallory, link.muxed_conn.secured_conn.write


async def test_bytes_beyond_every_window_are_left_with_their_sender(raw: "tuple[Probe, Attacker, Any]") -> None:
    node, mallory, write = raw
    victim = connection(node, mallory.peer_id)
    body = bytes(60_000)
    with trio.move_on_after(3):
        await write(frame(library.TYPE_WINDOW_UPDATE, library.FLAG_SYN, 99_999, 0))
        while True:
            await write(frame(library.TYPE_DATA, 0, 99_999, len(body), b"\xff" * len(body)))
    assert sum(map(len, victim.stream_buffers.values())) < yamux.UNREAD_BYTES + len(body)


async def test_a_frame_that_is_longer_than_a_window_ends_the_connection(
    raw: "tuple[Probe, Attacker, Any]", until: "Until"
) -> None:
    node, mallory, write = raw
    await write(frame(library.TYPE_WINDOW_UPDATE, library.FLAG_SYN, 99_999, 0))
    await write(frame(library.TYPE_DATA, 0, 99_999, yamux.WINDOW_BYTES + 1))
    await until(lambda: mallory.peer_id not in node.links())


async def test_streams_that_their_peer_never_closes_do_not_pile_up(raw: "tuple[Probe, Attacker, Any]") -> None:
    node, mallory, write = raw
    victim = connection(node, mallory.peer_id)
    with trio.move_on_after(5):
        for stream in count(100_001, 2):
            await write(frame(library.TYPE_WINDOW_UPDATE, library.FLAG_SYN, stream, 0))
            await write(frame(library.TYPE_DATA, 0, stream, len(IDENTIFY), IDENTIFY))
            await trio.sleep(0.005)
    assert len(victim.streams) <= yamux.STREAMS + 1


@pytest.mark.usefixtures("fast")
async def test_a_connection_that_cannot_be_read_any_more_is_closed(
    raw: "tuple[Probe, Attacker, Any]", until: "Until", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yamux, "STREAMS", 8)
    node, mallory, write = raw
    for stream in range(100_001, 100_041, 2):
        await write(frame(library.TYPE_WINDOW_UPDATE, library.FLAG_SYN, stream, 0))
        await write(frame(library.TYPE_DATA, 0, stream, len(IDENTIFY), IDENTIFY))
    await until(lambda: mallory.peer_id not in node.links(), within=10 * TICK + 10)


def after(seconds: float, rate: yamux.Rate) -> float:
    """The most that a budget gives in so many seconds."""
    per_second, at_once = rate
    return at_once + per_second * seconds + 1


async def test_a_flood_of_frames_is_read_at_the_rate_of_a_connection(
    raw: "tuple[Probe, Attacker, Any]", monkeypatch: pytest.MonkeyPatch
) -> None:
    node, mallory, write = raw
    victim, seen = connection(node, mallory.peer_id), count()
    monkeypatch.setattr(victim, "_take", _counted(victim._take, seen))
    before = trio.current_time()
    with trio.move_on_after(5):
        await _flood(write)
    passed = trio.current_time() - before
    assert next(seen) <= after(passed, yamux.READS)


class Link:
    """A connection that has all bytes that a stream asks for, and notes what the peer is granted."""

    def __init__(self) -> None:
        self.granted: list[int] = []

    async def read_stream(self, _stream: int, n: int) -> bytes:
        return bytes(n)

    async def _write_frame(self, frame: bytes) -> None:
        *_, increment = struct.unpack(library.YAMUX_HEADER_FORMAT, frame)
        self.granted.append(increment)


@given(st.lists(st.integers(0, library.MAX_MESSAGE_SIZE), max_size=60))
def test_a_stream_grants_what_was_read_in_halves_of_a_window(sizes: list[int]) -> None:
    link = Link()
    stream = grant_by_halves(library.YamuxStream(1, link, is_initiator=False))

    async def read_all() -> None:
        for size in sizes:
            await stream.read(size)

    trio.run(read_all)
    assert 0 <= sum(sizes) - sum(link.granted) < HALF
    assert stream.recv_window == yamux.WINDOW_BYTES + sum(link.granted)
    assert all(HALF <= increment < 2 * HALF for increment in link.granted)


async def test_short_messages_cost_no_window_update_on_either_end_of_a_stream(
    start: "Start", until: "Until", monkeypatch: pytest.MonkeyPatch
) -> None:
    async def echo(_peer: str, request: bytes) -> bytes:
        return request

    requests = Requests("/sapo/2/test/pull", echo)
    one = await start(1, requests=requests)
    two = await start(2, requests=requests, bootstrap=(one.address,))
    await until(lambda: one.sees(two) and two.sees(one))
    updates: list[int] = []
    monkeypatch.setattr(library.YamuxStream, "send_window_update", lambda _, told, **__: updates.append(told))
    assert await two.network.ask(one.network.peer_id, bytes(1_000)) == bytes(1_000)
    assert updates == []


BUDGETS = {
    "reads": (yamux.READS, yamux.ASSURED_READS, yamux.SHARED_READS),
    "streams": (yamux.STREAMS_OPENED, yamux.ASSURED_STREAMS, yamux.SHARED_STREAMS),
}
"""The rate and the burst of one peer at most, of one peer for sure, and of all beyond that."""


@pytest.mark.parametrize("peers", [1, 16])
@pytest.mark.parametrize("kind", BUDGETS)
def test_floods_of_many_peers_are_taken_at_the_rate_that_all_share(kind: str, peers: int) -> None:
    most, assured, shared = BUDGETS[kind]
    budget, seconds, taken = yamux.budget_of(most, assured, shared), 2, 0
    for tick in range(4 * seconds):
        for peer in range(peers):
            while budget.take(f"peer {peer}", tick / 4):
                taken += 1
    of_each, of_one, of_all = (burst + seconds * rate for rate, burst in (assured, most, shared))
    assert taken <= peers * of_each + of_all
    assert taken <= peers * of_one


@pytest.mark.parametrize("kind", BUDGETS)
def test_a_peer_within_its_assured_rate_is_served_while_16_others_flood(kind: str) -> None:
    most, (rate, burst), shared = BUDGETS[kind]
    budget = yamux.budget_of(most, (rate, burst), shared)
    for tick in range(round(10 * rate)):
        for peer in range(16):
            while budget.take(f"flood {peer}", tick / rate):
                pass
        assert budget.take("honest", tick / rate)


@pytest.mark.parametrize("kind", BUDGETS)
def test_a_peer_that_connects_again_goes_on_with_what_it_had_left(kind: str) -> None:
    budget, burst = yamux.budget_of(*BUDGETS[kind]), BUDGETS[kind][0][1]
    assert sum(budget.take("a", 0.0) for _ in range(10_000)) == burst
    assert not budget.take("a", 0.0)


async def test_short_streams_are_taken_at_the_rate_of_a_connection(
    raw: "tuple[Probe, Attacker, Any]", monkeypatch: pytest.MonkeyPatch
) -> None:
    node, _, write = raw
    service, taken = node.network._session, count()
    assert service is not None

    async def reset(stream: Any) -> None:
        next(taken)
        await stream.reset()

    monkeypatch.setattr(service.inbound, "_negotiate", reset)
    before = trio.current_time()
    with trio.move_on_after(2):
        for stream in count(100_001, 2):
            await write(frame(library.TYPE_WINDOW_UPDATE, library.FLAG_SYN, stream, 0))
            await write(frame(library.TYPE_WINDOW_UPDATE, library.FLAG_RST, stream, 0))
            await trio.sleep(0.005)
    passed = trio.current_time() - before
    assert next(taken) <= after(passed, yamux.STREAMS_OPENED)


async def test_all_connections_of_a_node_share_one_budget(
    start: "Start", attacker: "Attack", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yamux, "SHARED_READS", (0.0, 600.0))
    node = await start(1)
    async with attacker(node.address, 200) as first, attacker(node.address, 201) as second:
        before = trio.current_time()
        seen = count()
        async with trio.open_nursery() as nursery:
            for mallory in (first, second):
                victim = connection(node, mallory.peer_id)
                monkeypatch.setattr(victim, "_take", _counted(victim._take, seen))
                (link,) = mallory.host.get_network().get_connections(mallory.target)
                nursery.start_soon(_flood, link.muxed_conn.secured_conn.write)
            await trio.sleep(4)
            nursery.cancel_scope.cancel()
        passed, taken = trio.current_time() - before, next(seen)  # a connection that ends is read to its end
    assert taken <= 600 + 2 * after(passed, yamux.ASSURED_READS)


def _counted(take: Any, seen: "count[int]") -> Any:
    async def counted(size: int | None = None) -> bytes:
        next(seen)
        return bytes(await take(size))

    return counted


async def _flood(write: Any) -> None:
    while True:
        await write(frame(library.TYPE_WINDOW_UPDATE, 0, 99_999, 1) * 1_000)
