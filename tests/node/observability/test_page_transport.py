"""What the page's server makes of bytes: raw requests over real sockets to a page that is served."""

import re
import socket
from pathlib import Path

import pytest
import trio
import trio.testing

from sapo_node.http import server
from sapo_node.http.server import MAX_CONNECTIONS, SECONDS, Answer
from sapo_node.observability.dashboard import Dashboard
from sapo_node.observability.dashboard.facts import Facts
from sapo_protocol import load_manifest

LOOPBACK, EVERYWHERE = ("127.0.0.1", 0), ("0.0.0.0", 0)
PORT = b"%PORT"


@pytest.fixture
def serve(database, nursery, tmp_path):
    """Serves a page at a place; gives its port and the token, which is empty on loopback."""

    async def at(place):
        dashboard = Dashboard(Facts(database), database, place, load_manifest("starter"), tmp_path / "token")
        await nursery.start(dashboard.run)
        port, token = re.search(r":(\d+)/(?:\?token=(.*))?$", dashboard.address).groups()
        return int(port), token or ""

    return at


async def exchange(port, request):
    """Everything that comes back for a request, until the server closes."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(request)
        answer = b""
        with trio.fail_after(5):
            while data := await stream.receive_some(65_536):
                answer += data
    return answer


async def status(port, request):
    return int((await exchange(port, request)).split()[1])


def asks(host, target=b"/api/state"):
    return b"GET " + target + b" HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n"


OWN = b"""
127.0.0.1:%PORT 127.0.0.1 127.0.0.2 127.0.0.1:1 127.0.0.1:0 127.0.0.1:65535 localhost localhost:%PORT LOCALHOST:%PORT
LocalHost [::1] [::1]:%PORT [0:0:0:0:0:0:0:1]:80
""".split()
FOREIGN = b"""
evil.example evil.example:%PORT 127.0.0.1.evil.example localhost.evil.example xn--bcher-kva.example 127-0-0-1.example
localhost1 localhost.localdomain 127.0.0.1.nip.io localhost-evil.example a-b.example 192.0.2.1 0.0.0.0 [::]
[2001:db8::1]:%PORT
""".split()
MALFORMED = rb"""
: :%PORT a{b.evil.example a}b.evil.example evil.example. localhost. 127.0.0.1. 127.0.0.1: 127.0.0.1:x 127.0.0.1:99999
127.0.0.1:+80 127.0.0.1:80:80 user@127.0.0.1 user:pass@localhost evil.example@localhost localhost/evil
http://127.0.0.1/ 127.1 2130706433 0x7f000001 0177.0.0.1 127.0.0.01 127.0.0.1%2eevil %6cocalhost
::1 [::1 ::1] [::1]x [::1%lo] [::1%25lo] [127.0.0.1] [] [localhost] a_b.evil -a.evil a-.evil a..evil .localhost
a`b.evil a|b.evil a^b.evil a'b.evil a"b.evil a\b.evil a;b.evil a~b.evil a!b.evil * (localhost) 127.0.0.1# 127.0.0.1?x
a<b>.evil localhost,evil.example LOCALHOST. localhost.:80 0x7f.1 0x7F.0.0.1 017700000001 127.0.0.1:0x50
[fe80::1%25eth0]:80 [::1]:80:80 [::1]evil.example [0::0::1]
""".split()
MALFORMED += [b"", b" ", b"local host", b"localhost, evil.example", b"local\thost", b"local\x00host", b"local\x7fhost"]
MALFORMED += [
    b"l\xc3\xb6calhost",
    "l\u043ecalhost".encode(),
    "\uff11\uff12\uff17.0.0.1".encode(),
    "127\u30020.0.1".encode(),
    b"\xff",
    b"a" * 64 + b".evil",
    b"1" * 5_000,
]


@pytest.mark.parametrize(
    ("host", "expected"),
    [*((host, 200) for host in OWN), *((host, 421) for host in FOREIGN), *((host, 400) for host in MALFORMED)],
)
async def test_on_loopback_the_page_answers_only_to_the_names_of_loopback(serve, host, expected):
    port, _ = await serve(LOOPBACK)
    assert await status(port, asks(host.replace(PORT, b"%d" % port))) == expected


@pytest.mark.parametrize("host", MALFORMED)
async def test_beyond_loopback_a_malformed_name_is_refused_even_with_the_token(serve, host):
    port, token = await serve(EVERYWHERE)
    target = f"/api/state?token={token}".encode()
    assert await status(port, asks(b"node.example", target)) == 200
    assert await status(port, asks(host.replace(PORT, b"%d" % port), target)) == 400


HEAD = b"GET /api/state HTTP/1.1\r\n"


@pytest.mark.parametrize(
    "request_bytes",
    [
        HEAD + b"\r\n",
        b"GET /api/state HTTP/1.0\r\n\r\n",
        HEAD + b"Host: 127.0.0.1\r\nHost: 127.0.0.1\r\n\r\n",
        HEAD + b"Host: 127.0.0.1\r\nhost: evil.example\r\n\r\n",
        b"GET /api/state HTTP/1.0\r\nHost: 127.0.0.1\r\nHost: 127.0.0.1\r\n\r\n",
        HEAD + b"Host : 127.0.0.1\r\n\r\n",
        HEAD + b" Host: 127.0.0.1\r\n\r\n",
        HEAD + b"Host: 127.0.0.1\r\n .evil.example\r\n\r\n",
        b"GET http://evil.example/api/state HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET http://127.0.0.1/api/state HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        b"GET evil.example:80 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET api/state HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    ],
)
async def test_a_request_that_names_no_host_or_two_or_another_target_is_refused(serve, request_bytes):
    port, _ = await serve(LOOPBACK)
    assert await status(port, request_bytes) == 400


async def test_a_request_of_the_first_version_with_one_name_is_answered(serve):
    port, _ = await serve(LOOPBACK)
    assert await status(port, b"GET / HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n") == 200


async def test_a_head_longer_than_the_bound_is_refused(serve):
    port, _ = await serve(LOOPBACK)
    long = HEAD + b"Host: 127.0.0.1\r\nX: " + b"x" * 20_000
    assert await status(port, long) == 431


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
        HEAD + b"Host: 127.0.0.1\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        b"HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
        HEAD + b"Host: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
    ],
)
async def test_nothing_but_http_1_is_spoken(serve, request_bytes):
    port, _ = await serve(LOOPBACK)
    answer = await exchange(port, request_bytes)
    assert answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 400"))
    assert b"HTTP/2" not in answer
    assert b"upgrade" not in answer.lower()


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_half_requests_take_no_more_descriptors_than_the_bound_and_keep_nobody_out(serve):
    port, _ = await serve(LOOPBACK)
    before = descriptors()
    halves = []
    for _ in range(MAX_CONNECTIONS * 3):
        half = socket.create_connection(("127.0.0.1", port), timeout=5)
        half.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        halves.append(half)
        await trio.testing.wait_all_tasks_blocked(0.001)
    try:
        assert await status(port, asks(b"127.0.0.1")) == 200
        assert descriptors() - before - len(halves) <= MAX_CONNECTIONS
    finally:
        for half in halves:
            half.close()


async def test_a_client_that_has_shown_its_token_gives_way_to_no_silent_connection(nursery):
    asked, answered = trio.Event(), trio.Event()

    async def answer(request):
        request.admit()
        asked.set()
        await answered.wait()
        return Answer(b"here")

    async def ask():
        assert (await exchange(port, asks(b"localhost"))).endswith(b"here")
        done.set()

    done = trio.Event()
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    nursery.start_soon(server.serve, listener, answer)
    nursery.start_soon(ask)
    await asked.wait()
    silent = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(3 * MAX_CONNECTIONS)]
    await trio.testing.wait_all_tasks_blocked(0.01)
    answered.set()
    with trio.fail_after(5):
        await done.wait()
        # each place is taken by a client with the token: a new connection is closed
        asked, answered = trio.Event(), trio.Event()
        holders = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(MAX_CONNECTIONS)]
        for stream in holders:
            await stream.send_all(asks(b"localhost"))
        await trio.testing.wait_all_tasks_blocked(0.05)
        async with await trio.open_tcp_stream("127.0.0.1", port) as late:
            assert await late.receive_some() == b""
    for stream in (*silent, *holders):
        await stream.aclose()


async def test_a_half_request_ends_with_its_time(serve, autojump_clock):
    port, _ = await serve(LOOPBACK)
    async with await trio.open_tcp_stream("127.0.0.1", port) as half:
        await half.send_all(b"GET / HTTP/1.1\r\n")
        with trio.fail_after(SECONDS + 1):
            assert await half.receive_some(1) == b""
